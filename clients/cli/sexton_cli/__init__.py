"""The ``sexton`` command."""
