"""What sessions and share groups are owed: their queues, in memory and in the store."""
