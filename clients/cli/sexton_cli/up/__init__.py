"""`sexton up`: the whole mesh on this machine, as supervised processes."""
