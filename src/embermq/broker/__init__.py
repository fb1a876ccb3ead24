"""The core: synchronous, deterministic, no I/O. Given packets and instants it decides."""
