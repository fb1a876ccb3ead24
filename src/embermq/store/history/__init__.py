"""Reading what was: messages of the log and the retained set of an instant, off the broker's thread."""
