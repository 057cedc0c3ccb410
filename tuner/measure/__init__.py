"""The measuring room: load on a running server, and decode throughput from what comes back."""
