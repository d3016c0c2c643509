"""The mesh as its public API shows it."""
