"""Queries to a lake: as-of, audit, report, SQL."""
