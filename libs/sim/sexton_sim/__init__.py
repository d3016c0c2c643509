"""Deterministic simulation: virtual time, an in-memory network, faults, histories, the checker."""
