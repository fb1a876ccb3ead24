"""The resources of the HTTP interface, a module for each group."""
