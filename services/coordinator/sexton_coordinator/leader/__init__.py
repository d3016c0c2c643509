"""The leader of a coordinator shard: fires what is due, works off what was deleted, keeps house.

The pure parts are `horizon`, `machine` and `steps`; the shell around them is one tenure of the
shard's lease (`tenure`), which ends with the lease and takes all that it knew with it.
"""
