"""The bridges: where each goes, whether it is connected, and how far it is."""

from dataclasses import asdict
from typing import Annotated, Final, Literal

from pydantic import Field

from embermq.bridge.facts import BridgeFacts
from embermq.http.fields import Model, Nothing, Timestamp
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.instants import utc_text


class Bridge(Model):
    """A bridge. Counts are since the start of the server, or since the bridge was changed.

    `sent` and `acknowledged` are messages for the other broker; `refused` by it, `expired` before they were sent,
    `too_large` for it. `received` are messages of the other broker; `unmatched` of a topic that no rule names. `loops`
    had passed this server before, or too many servers. `lost_records` were trimmed before the bridge had come to them.
    """

    name: str
    address: str
    state: Literal["connecting", "connected", "waiting", "stopped"]
    since: Timestamp
    error: Annotated[str, Field(description="Why it is not connected, or what went wrong last; empty if nothing.")]
    lag: Annotated[int, Field(description="Records of the log that it has not passed.")]
    in_flight: Annotated[int, Field(description="Messages whose handshake has not ended.")]
    sent: int
    acknowledged: int
    received: int
    refused: int
    expired: int
    too_large: int
    loops: int
    unmatched: int
    lost_records: int
    connections: Annotated[int, Field(description="Attempts to connect.")]
    failures: Annotated[int, Field(description="Attempts and connections that ended with an error.")]


class BridgeList(Model):
    """As in the settings."""

    items: list[Bridge]


def _bridge(facts: BridgeFacts) -> Bridge:
    counters = asdict(facts.counters)
    return Bridge(
        name=facts.name,
        address=facts.address,
        state=facts.state,
        since=utc_text(facts.since_us),
        error=facts.error,
        lag=facts.lag,
        in_flight=facts.in_flight,
        lost_records=counters.pop("lost"),
        **counters,
    )


async def bridges(call: Call[Nothing, Nothing]) -> Answer:
    calls = call.service.calls
    return BridgeList(items=[] if calls is None else [_bridge(each) for each in calls.bridges()])


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/bridges",
        role=VIEWER,
        summary="The bridges to other brokers.",
        handle=bridges,
        query=Nothing,
        body=Nothing,
        answer=BridgeList,
    ),
)
