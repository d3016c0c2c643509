"""The store seen from outside: its vocabulary, its Protocol, its client."""
