"""What lasts: one interface and its engines."""
