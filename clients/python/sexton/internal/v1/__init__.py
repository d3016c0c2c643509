"""Generated from protos/sexton/internal/v1."""
