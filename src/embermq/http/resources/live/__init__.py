"""Resources that do not end: messages as they are published, and the newest of each topic."""
