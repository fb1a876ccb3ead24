"""The catalog: all operations of the HTTP interface."""

from typing import Any, Final

from embermq.http.operation import Operation
from embermq.http.resources import clients, facts, retained, sessions

OPERATIONS: Final[tuple[Operation[Any, Any], ...]] = (
    *facts.OPERATIONS,
    *clients.OPERATIONS,
    *sessions.OPERATIONS,
    *retained.OPERATIONS,
)
