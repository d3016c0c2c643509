"""Sexton's worker: takes runs from a queue and executes them."""
