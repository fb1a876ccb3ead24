"""Bounds: how much one client, one address, or all clients together may ask of the server."""
