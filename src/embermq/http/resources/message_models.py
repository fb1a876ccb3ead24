"""The models of a message in answers, for the OpenAPI document; `http/messages_json` writes them."""

from embermq.http.fields import Model, Timestamp


class MessageProperties(Model):
    """The properties of MQTT 5 that a message has."""

    payload_format_indicator: int | None = None
    message_expiry_interval: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: str | None = None
    correlation_data_base64: str | None = None
    user_properties: list[tuple[str, str]] | None = None


class RetainedMessage(Model):
    """A retained message. Its payload is `payload` if it is UTF-8, else `payload_base64`; `payload_bytes` is its size,
    also where only its beginning was asked for."""

    topic: str
    payload: str | None = None
    payload_base64: str | None = None
    payload_bytes: int
    qos: int
    timestamp: Timestamp
    client_id: str
    offset: int
    expires: Timestamp | None = None
    properties: MessageProperties | None = None
    properties_base64: str | None = None
