"""The public API of Sexton, generated from protos/sexton/v1."""
