"""How services speak: transport settings, the server's gate, the client's channel, health."""
