"""The catalog: all operations of the HTTP interface."""

from typing import Any, Final

from embermq.http.operation import Operation
from embermq.http.resources import (
    clients,
    documents,
    facts,
    log,
    log_blocks,
    messages,
    pipeline,
    retained,
    sessions,
    subscriptions,
    tail,
)
from embermq.http.resources.topics import tree

OPERATIONS: Final[tuple[Operation[Any, Any], ...]] = (
    *facts.OPERATIONS,
    *documents.OPERATIONS,
    *clients.OPERATIONS,
    *sessions.OPERATIONS,
    *subscriptions.OPERATIONS,
    *retained.OPERATIONS,
    *tree.OPERATIONS,
    *messages.OPERATIONS,
    *tail.OPERATIONS,
    *log.OPERATIONS,
    *log_blocks.OPERATIONS,
    *pipeline.OPERATIONS,
)
