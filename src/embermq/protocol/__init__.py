"""Bytes to packets and back, for every dialect; topic names and filters. Sans-IO: no socket, no clock, no file."""
