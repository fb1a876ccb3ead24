"""The data pipeline on Spark: source, sink, tables, jobs."""
