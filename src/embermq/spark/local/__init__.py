"""The tables of a lake without Spark and Java: read by delta-rs, queried by DuckDB (the extra `sql`)."""
