"""Pages over HTTP: routes, sessions, actions, live updates."""
