"""Bridges: cursors in the log that are sent to another broker, and what comes from there (docs/how-to/bridge.md)."""
