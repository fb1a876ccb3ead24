"""Commands of the pipeline for clusters: where the log is read from elsewhere, and spark-submit."""
