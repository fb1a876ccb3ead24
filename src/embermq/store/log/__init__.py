"""The log: append-only segment files of columnar blocks, with their writer, reader and checks."""
