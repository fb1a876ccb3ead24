"""Several nodes that share one ordered log of blocks (docs/nodes.md). A single server imports nothing of it."""
