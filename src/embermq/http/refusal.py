"""Refusals: why a request is not answered, as a status code and one sentence."""

from collections.abc import Mapping
from typing import Final, final

SENTENCES: Final = {
    404: "there is no such resource, GET /openapi.json lists them",
    405: "this resource does not know the method",
    408: "the body of the request did not come in time",
    413: "the request is larger than limits.packet_bytes_max allows",
}
"""For refusals that the HTTP library decides."""
INTERNAL_ERROR: Final = "internal error, the server's log has the details"


@final
class HttpRefusal(Exception):
    """A request that is refused; `str` gives the sentence."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status: Final = status
        self.headers: Final = dict(headers or {})
