"""The nodes of the cluster: who serves clients, and how far each other one is behind."""

from typing import Annotated, Final

from pydantic import Field

from embermq.http.fields import Model, Nothing, Timestamp, now_us
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.instants import utc_text
from embermq.store.interface import NodeStatus


class Node(Model):
    """A node, as it was last heard of in the shared log; one that was not heard of has no `heard`."""

    node: int
    state: Annotated[str, Field(description="active, standby, expelled, or gone: it says nothing now.")]
    is_this: Annotated[bool, Field(description="Whether this server is asked now.")]
    reachable_at: Annotated[str, Field(description="Where clients reach it; empty if it does not say so.")]
    next_offset: Annotated[int | None, Field(description="The offset that its log goes on at.")] = None
    lag: Annotated[int | None, Field(description="Records of the shared log that its log did not have.")] = None
    heard: Timestamp | None = None


class NodeList(Model):
    """In the order of their numbers; empty for a single server."""

    items: list[Node]


def _node(status: NodeStatus) -> Node:
    is_heard = status.heard_ms >= 0
    return Node(
        node=status.node,
        state=status.state,
        is_this=status.is_this,
        reachable_at=status.reachable_at,
        next_offset=status.next_offset if is_heard else None,
        lag=status.lag if is_heard else None,
        heard=utc_text(now_us() - status.heard_ms * 1000) if is_heard else None,
    )


async def nodes(call: Call[Nothing, Nothing]) -> Answer:
    return NodeList(items=[_node(each) for each in call.service.server.store.nodes()])


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/nodes",
        role=VIEWER,
        summary="The nodes of the cluster, and how far each is.",
        handle=nodes,
        query=Nothing,
        body=Nothing,
        answer=NodeList,
    ),
)
