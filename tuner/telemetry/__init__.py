"""The telemetry room: what the box did while a level ran, and what the box is."""
