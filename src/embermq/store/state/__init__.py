"""The keyed state on RocksDB: retained messages, their history, sessions and queues. Always behind the log."""
