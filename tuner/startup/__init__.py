"""How a server starts: the ladder of phases, and following it until it is proven ready."""
