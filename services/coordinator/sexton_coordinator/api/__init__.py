"""The public API, served by every replica: jobs, runs, members."""
