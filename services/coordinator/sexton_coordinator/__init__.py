"""The coordinator: decides what is due as a shard's leader, and serves the job and run API."""
