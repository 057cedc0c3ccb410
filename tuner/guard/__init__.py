"""The guard room: whether a configuration still says what the default server says."""
