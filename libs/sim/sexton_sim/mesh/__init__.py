"""The whole mesh from one seed: store, coordinators, queues, workers, and people who use it."""
