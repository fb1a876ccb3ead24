"""Payloads as values with types: one decoder for each format, the same for Spark and for who reads without it."""
