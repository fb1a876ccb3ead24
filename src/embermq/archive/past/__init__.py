"""What was, of instants that only the archive has: the retained set, and the records that it was made of."""
