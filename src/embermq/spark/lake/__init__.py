"""The lake: its tables, checkpoints, progress and compaction."""
