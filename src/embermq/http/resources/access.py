"""Access: what the access list lets a user do with a topic, and by which line."""

from typing import Annotated, Final, Literal

from pydantic import Field

from embermq.broker.access import READ, RETAIN, SEE_ALL, WRITE, Identity
from embermq.http.fields import Model, Nothing, TopicFilter
from embermq.http.operation import OPERATOR, Answer, Call, Operation
from embermq.http.refusal import HttpRefusal
from embermq.protocol.topics import check_topic_name

Verb = Literal["read", "write", "retain", "see-all"]
"""What a user wants to do; `retain` is to publish a retained message."""
RIGHTS: Final[dict[Verb, int]] = {"read": READ, "write": WRITE, "retain": WRITE | RETAIN, "see-all": SEE_ALL}


class AccessQuery(Model):
    user: Annotated[str, Field(description="User name; empty for an anonymous client.", examples=["ann"])] = ""
    client_id: Annotated[str, Field(description="Client identifier, for rules with %c.", examples=["pump-7"])] = ""
    verb: Annotated[Verb, Field(description="What the user wants to do.", examples=["read"])] = "read"
    topic: TopicFilter


class AccessAnswer(Model):
    """`rules` are the lines of the access list that allow it; `why` is one sentence."""

    allowed: bool
    rules: list[str]
    why: str


async def simulate(call: Call[AccessQuery, Nothing]) -> Answer:
    query = call.query
    access = call.service.server.access
    if query.verb in ("write", "retain") and check_topic_name(query.topic):
        raise HttpRefusal(422, "topic: expected a topic name, without wildcards, for what is published")
    if access.unrestricted:
        return AccessAnswer(allowed=True, rules=[], why="there is no access list: every client may do everything")
    identity = Identity(query.user, query.client_id)
    rules = access.deciding_lines(identity, RIGHTS[query.verb], query.topic)
    allowed = _may(call, identity)
    if allowed and rules:
        return AccessAnswer(allowed=True, rules=rules, why="allowed by the access list")
    if rules:
        return AccessAnswer(allowed=allowed, rules=rules, why="denied by the access list")
    who = f"the user {query.user!a}" if query.user else "an anonymous client"
    what = "see all" if query.verb == "see-all" else f"{query.verb} {query.topic!a}"
    return AccessAnswer(allowed=allowed, rules=rules, why=f"no line of the access list lets {who} {what}")


def _may(call: Call[AccessQuery, Nothing], identity: Identity) -> bool:
    """As the server decides when a client asks."""
    access, query = call.service.server.access, call.query
    if query.verb == "read":
        return access.may_subscribe(identity, query.topic)
    if query.verb == "see-all":
        return access.may_see_all(identity)
    return access.may_publish(identity, query.topic, query.verb == "retain")


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/access",
        role=OPERATOR,
        summary="What a user may do with a topic, and which lines of the access list decide.",
        handle=simulate,
        query=AccessQuery,
        body=Nothing,
        answer=AccessAnswer,
        statuses=(422,),
    ),
)
