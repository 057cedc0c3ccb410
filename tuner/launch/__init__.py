"""Where servers run: executors, leases of ports and GPUs, process trees."""
