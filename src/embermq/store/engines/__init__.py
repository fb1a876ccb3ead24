"""The engines: what fills the interface of the store, on disk or in memory."""
