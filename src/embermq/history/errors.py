"""Errors of reading the log of a server on another machine. Each is one sentence for the user."""

from embermq.errors import PipelineError


class ServerUnreachable(PipelineError):
    """The server that has the log does not answer."""


class ServerRefused(PipelineError):
    """The server that has the log has refused a request; `sentence` is what it says."""

    def __init__(self, status: int, url: str, sentence: str) -> None:
        super().__init__(status, url, sentence)
        self.status = status
        self.sentence = sentence
        self.url = url

    def __str__(self) -> str:
        return f"{self.url} refuses: {self.sentence}"
