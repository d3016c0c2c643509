"""Sexton's Python SDK."""
