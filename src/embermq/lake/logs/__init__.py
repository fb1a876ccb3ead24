"""Where a log is read from: a data directory, an archive, a running server; the rows are the same."""
