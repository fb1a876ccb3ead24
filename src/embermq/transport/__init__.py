"""Asyncio shells: they move bytes and time, and decide nothing."""
