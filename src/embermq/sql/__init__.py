"""Queries of a server's history in SQL and as Arrow, beside the running server, without Java.

open_log.py   the messages of a log as Arrow batches: `embermq.open_log`
dataset.py    the same as a dataset, for DuckDB and others that push filters down
events.py     what clients did, as rows
session.py    DuckDB with all tables: `ember sql`
"""
