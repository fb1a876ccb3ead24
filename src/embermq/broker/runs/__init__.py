"""Runs: packets of one kind that came one behind the other, handled together."""
