"""Publishing: messages of an operator, retained or not, answered when they are durable.

Owns: how a message is read from JSON. In the log it has the name of the login.
"""

from base64 import b64decode
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from embermq.http.fields import Base64, Model, Nothing, Timestamp, TopicName, now_us, whole_number
from embermq.http.operation import OPERATOR, Answer, Call, Operation
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.message_models import MessageProperties
from embermq.http.service import Pending
from embermq.http.streaming import Slices
from embermq.protocol.errors import PeerError
from embermq.protocol.message_expiry import message_expires_us
from embermq.protocol.mqtt.fields import Fields, variable_byte_integer
from embermq.protocol.mqtt.message_fields import message_properties
from embermq.protocol.mqtt.properties import CLIENT, read_message_section
from embermq.protocol.packets import PUBLISH, Publish

MESSAGES_MAX: Final = 10_000
"""How many messages one request may publish; the size of a body bounds them as well."""
FIELD_NAMES: Final = {"message_expiry_interval": "expiry", "payload_format_indicator": "payload_format"}
"""Where a property's name in JSON is not that of its field in tables."""


class NewMessage(Model):
    """A message to publish, with its payload as text or as base64, one of them.

    Its properties are given by name, or as they are in a PUBLISH of MQTT 5.
    """

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["payload"]}, {"required": ["payload_base64"]}]},
    )

    topic: TopicName
    payload: str = ""
    payload_base64: Base64 = ""
    qos: Annotated[
        int, BeforeValidator(whole_number), Field(ge=0, le=2, json_schema_extra={"minimum": 0, "maximum": 2})
    ] = 0
    retain: Annotated[bool, Field(description="Retain it; with an empty payload, clear the topic.")] = False
    properties: MessageProperties | None = None
    properties_base64: Annotated[Base64, Field(description="The properties of MQTT 5, as in a PUBLISH.")] = ""

    @model_validator(mode="after")
    def _has_a_payload(self) -> "NewMessage":
        if len(self.model_fields_set & {"payload", "payload_base64"}) != 1:
            raise ValueError("expected payload or payload_base64, one of them")
        return self

    def publish(self) -> Publish:
        """The message; a `PeerError` or a `ValueError` says what is wrong with its properties."""
        payload = self.payload.encode() if self.payload else b64decode(self.payload_base64)
        given = b64decode(self.properties_base64)
        if self.properties is not None:
            if given:
                raise ValueError("expected properties or properties_base64, one of them")
            given = _wire_properties(self.properties)
        section = variable_byte_integer(len(given)) + given
        properties = read_message_section(Fields(section, 0, len(section)), PUBLISH, CLIENT).canonical
        expires_us = message_expires_us(properties, now_us())
        return Publish(self.topic, payload, self.qos, self.retain, False, 0, properties, expires_us)


class RetainedValue(NewMessage):
    """A message to retain. An empty payload would clear."""

    payload: Annotated[str, Field(json_schema_extra={"minLength": 1})] = ""
    payload_base64: Annotated[Base64, Field(json_schema_extra={"minLength": 4})] = ""
    retain: Annotated[Literal[True], Field(description="It is retained in any case.")] = True

    @model_validator(mode="after")
    def _is_not_empty(self) -> "RetainedValue":
        if not self.payload and not self.payload_base64:
            raise ValueError("expected a payload that is not empty: an empty one clears")
        return self


class PublishBody(Model):
    messages: list[NewMessage]


class SetBody(Model):
    messages: list[RetainedValue]


class RefusedMessage(Model):
    place: Annotated[int, Field(description="The place in the request, from 0 on.")]
    error: str


class PublishAnswer(Model):
    """What was published is durable. A restore as of `undo_as_of` takes back what was retained."""

    published: int
    refused: list[RefusedMessage]
    undo_as_of: Timestamp | None = None


class SetAnswer(Model):
    """What was retained is durable. A restore as of `undo_as_of` takes it back."""

    retained: int
    refused: list[RefusedMessage]
    undo_as_of: Timestamp | None = None


def _wire_properties(properties: MessageProperties) -> bytes:
    found: dict[str, Any] = {}
    for name, value in properties.model_dump(exclude_none=True).items():
        if name == "correlation_data_base64":
            found["correlation_data"] = b64decode(value)
        elif name == "correlation_data":
            found[name] = value.encode()
        else:
            found[FIELD_NAMES.get(name, name)] = value
    return message_properties(found)


async def publish_messages(call: Call[Nothing, PublishBody]) -> Answer:
    refused, undo_as_of = await _publish(call, call.body.messages, "publish", "published")
    return PublishAnswer(published=len(call.body.messages) - len(refused), refused=refused, undo_as_of=undo_as_of)


async def set_messages(call: Call[Nothing, SetBody]) -> Answer:
    refused, undo_as_of = await _publish(call, call.body.messages, "retain", "retained")
    return SetAnswer(retained=len(call.body.messages) - len(refused), refused=refused, undo_as_of=undo_as_of)


async def _publish(
    call: Call[Nothing, Any], messages: Sequence[NewMessage], verb: str, done: str
) -> tuple[list[RefusedMessage], str | None]:
    """Publish messages; returns those that were refused, and the instant before the first that was retained."""
    if len(messages) > MESSAGES_MAX:
        raise HttpRefusal(422, f"messages: expected at most {MESSAGES_MAX}")
    view = call.view
    pending = Pending()
    slices = Slices()
    refused: list[RefusedMessage] = []
    more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    outcome = "failed"
    undo_as_of: str | None = None
    try:
        for place, given in enumerate(messages):
            before = view.before_changes() if given.retain and undo_as_of is None else undo_as_of
            try:
                refusal = view.publish(given.publish(), pending, call.actor.login_name)
            except (PeerError, ValueError) as error:
                refusal = f"properties: {error}"
            if refusal:
                refused.append(RefusedMessage(place=place, error=refusal))
            else:
                undo_as_of = before
            await slices.rest()
        await view.durable(pending)
        outcome = f"{len(messages) - len(refused)} {done}, {len(refused)} refused"
    finally:
        call.audit(verb, (messages[0].topic if messages else "") + more, outcome)
    return refused, undo_as_of if view.has_log else None


OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/api/v1/messages/publish",
        role=OPERATOR,
        summary="Publish messages, as if a client had; answered when they are durable.",
        handle=publish_messages,
        query=Nothing,
        body=PublishBody,
        answer=PublishAnswer,
        statuses=(422,),
        is_narrowed=True,
    ),
    Operation(
        method="POST",
        path="/api/v1/retained/set",
        role=OPERATOR,
        summary="Retain messages, as if a client had published them; answered when they are durable.",
        handle=set_messages,
        query=Nothing,
        body=SetBody,
        answer=SetAnswer,
        statuses=(422,),
        is_narrowed=True,
    ),
)
