"""Attacks: what hostile clients do to starve a server, to fill its memory or its log, or to take its files."""
