"""What Sexton's own services speak among themselves."""
