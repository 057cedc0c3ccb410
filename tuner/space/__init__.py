"""Search spaces: which configurations are possible, and how they are written down. Pure."""
