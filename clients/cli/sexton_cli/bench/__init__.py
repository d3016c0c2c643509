"""What `sexton bench` measures."""
