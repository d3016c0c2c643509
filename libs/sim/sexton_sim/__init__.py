"""Deterministic simulation: virtual time, an in-memory network, faults, histories, the checker.

From the bottom up: `loop` (virtual time), `process` and `clock` (kill -9, SIGSTOP, machines),
`network` and `transport` (the twin of gRPC), `disks`, `history` and `check`, `workload` and
`faults`, and `world`, which makes a mesh of them from one seed. Seeds are run by
``python -m sexton_sim``.
"""
