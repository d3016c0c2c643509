"""The store: the one process whose state matters. Compare-and-set, watch, leases over LMDB."""
