"""Resources about topics: their tree, a search in it, and the values of one."""
