"""Says why a server died, and where a running one is not what was asked for."""
