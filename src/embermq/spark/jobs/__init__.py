"""The jobs: streams from the log to the tables of the lake."""
