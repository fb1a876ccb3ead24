"""What was: the log wherever it is, its archive, and the retained set of past instants. The only way to ask for it."""
