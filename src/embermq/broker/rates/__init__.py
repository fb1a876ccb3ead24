"""Rates: how often a client may do something."""
