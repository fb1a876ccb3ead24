"""What the person who runs the server set wrong; what a peer does wrong is in `protocol.errors`."""


class ConfigError(Exception):
    """One sentence that names the place, the key and what was expected there. The command line exits with 2."""
