"""Runs: packets of one kind that come or go one behind the other, handled together."""
