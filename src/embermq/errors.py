"""Errors of the user who runs the server; errors of a peer are in `protocol.errors`."""


class ConfigError(Exception):
    """One sentence that names the place, the key and what was expected there. The command line exits with 2."""
