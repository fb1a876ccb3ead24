"""The archive: closed segments and checkpoints of a log in an object store or another directory (docs/archive.md)."""
