"""Rows published to the server from Spark."""
