"""The commands that need no mesh: they compute with the core what the mesh would do."""
