"""The commands of `ember`, a module for each group; `embermq.cli` joins them.

A module loads only what its help text needs: whatever is heavy is imported inside the command that needs it.
"""
