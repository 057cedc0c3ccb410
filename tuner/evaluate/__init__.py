"""From a configuration to what becomes of it: the seam between search and servers."""
