"""The alerts: each rule and what it is now."""

from typing import Annotated, Final, Literal

from pydantic import Field

from embermq.http.fields import Model, Nothing, Timestamp, shown_instant
from embermq.http.operation import VIEWER, Answer, Call, Operation


class AlertFacts(Model):
    """A rule. `since` is when its `state` began; both are left out before the first check."""

    name: str
    when: str
    state: Literal["ok", "firing", "no value"] | None = None
    since: Timestamp | None = None
    value: Annotated[float | None, Field(description="Of the metric, its rate, or seconds of silence.")] = None
    topic: Annotated[str, Field(description="Where changes are published; empty if nowhere.")]
    webhook_host: Annotated[str, Field(description="Of the URL, which may have a secret, only the host.")]
    problem: Annotated[str, Field(description="Why it cannot be checked; empty if it can.")]
    untold: Annotated[str, Field(description="Why the last change was not published or not taken by the webhook.")]


class AlertList(Model):
    """As in the settings."""

    items: list[AlertFacts]


async def alerts(call: Call[Nothing, Nothing]) -> Answer:
    return AlertList(
        items=[
            AlertFacts(
                name=alert.rule.name,
                when=alert.rule.when,
                state=alert.state,
                since=shown_instant(alert.since_us),
                value=alert.value,
                topic=alert.rule.topic,
                webhook_host=alert.rule.webhook_host,
                problem=alert.problem,
                untold=alert.untold,
            )
            for alert in call.service.alerts
        ]
    )


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/alerts",
        role=VIEWER,
        summary="The alerts of server.alerts, and what each is now.",
        handle=alerts,
        query=Nothing,
        body=Nothing,
        answer=AlertList,
    ),
)
