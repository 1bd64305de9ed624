"""The engine: everything that runs a network on behalf of the methods."""
