"""The commands that call a running mesh."""
