"""Errors of the user who runs the server or reads its history; errors of a peer are in `protocol.errors`."""


class ConfigError(Exception):
    """One sentence that names the place, the key and what was expected there. The command line exits with 2."""


class PipelineError(Exception):
    """The pipeline, or a query, cannot go on, in one sentence. The tables have lost nothing and have no row twice."""
