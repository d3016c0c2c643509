"""How every Sexton service lives: configuration, lifecycle, clock, rpc, store client, telemetry."""
