"""Records and messages as text: columns for people, JSON lines for programs."""
