"""Bounds: how much one client, or one address, may ask of the server in a time."""
