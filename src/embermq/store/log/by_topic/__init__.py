"""Reading a log by topic: the topic index of a closed segment, its making, and the blocks that a query needs."""
