"""The catalog: all operations of the HTTP interface."""

from typing import Any, Final

from embermq.http.operation import Operation
from embermq.http.resources import (
    access,
    alerts,
    bridges,
    clients,
    documents,
    facts,
    log,
    log_blocks,
    messages,
    nodes,
    publishing,
    rate,
    restoring,
    retained,
    sessions,
    sql,
    statistics_history,
    subscriptions,
    users,
)
from embermq.http.resources.live import latest, tail
from embermq.http.resources.pipeline import progress
from embermq.http.resources.topics import changes, search, tree, values

OPERATIONS: Final[tuple[Operation[Any, Any], ...]] = (
    *facts.OPERATIONS,
    *statistics_history.OPERATIONS,
    *alerts.OPERATIONS,
    *bridges.OPERATIONS,
    *nodes.OPERATIONS,
    *documents.OPERATIONS,
    *clients.OPERATIONS,
    *sessions.OPERATIONS,
    *subscriptions.OPERATIONS,
    *access.OPERATIONS,
    *users.OPERATIONS,
    *sql.OPERATIONS,
    *retained.OPERATIONS,
    *publishing.OPERATIONS,
    *restoring.OPERATIONS,
    *changes.OPERATIONS,
    *tree.OPERATIONS,
    *search.OPERATIONS,
    *messages.OPERATIONS,
    *rate.OPERATIONS,
    *values.OPERATIONS,
    *tail.OPERATIONS,
    *log.OPERATIONS,
    *log_blocks.OPERATIONS,
    *latest.OPERATIONS,
    *progress.OPERATIONS,
)
