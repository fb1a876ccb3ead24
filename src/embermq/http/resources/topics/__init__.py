"""Resources about topics: their tree, a search in it, the values of one, and the newest of all."""
