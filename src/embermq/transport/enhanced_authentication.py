"""Enhanced authentication of one connection (5.0, 4.12): the exchange of AUTH packets, at first and again later.

Owns: which step of the exchange comes next, and what follows from its answer for the connection.
Never: a method of authentication; those are behind `broker.access.Exchange`.
"""

from typing import Final, final

from embermq.broker.access import Exchange, ExchangeAnswer
from embermq.protocol.errors import ProtocolError, Refused
from embermq.protocol.mqtt.connection import Connection
from embermq.protocol.mqtt.states import CLOSING, OPEN
from embermq.protocol.packets import Auth, Connect
from embermq.protocol.reasons import ReasonCode
from embermq.transport.authentication import Authenticator
from embermq.transport.stream_link import OPENING, StreamLink


@final
class EnhancedAuthentication:
    """The exchange of one connection whose CONNECT names an Authentication Method."""

    def __init__(self, stream: StreamLink, connection: Connection, authenticator: Authenticator) -> None:
        self._stream: Final = stream
        self._connection: Final = connection
        self._authenticator: Final = authenticator
        self._connect: Connect | None = None  # until its sender is known
        self._exchange: Exchange | None = None

    def begin(self, connect: Connect, method: str, certificate_name: str | None) -> None:
        """A CONNECT with an Authentication Method has come."""
        self._connect = connect
        try:
            exchange = self._authenticator.begin_exchange(
                method, connect.client_id, certificate_name, self._stream.address_key
            )
        except Refused as refusal:
            self._stream.refused(refusal)
            return
        self._exchange = exchange
        self._step(exchange, connect.authentication_data, True)

    def take_auths(self) -> None:
        """AUTH has come: the next message of an exchange, or the first one of a re-authentication."""
        for auth in self._connection.take_auths():
            if self._connection.state >= CLOSING:
                return
            self._take_auth(auth)

    def _take_auth(self, auth: Auth) -> None:
        exchange = self._exchange
        is_first = auth.reason == ReasonCode.RE_AUTHENTICATE
        if exchange is None:
            self._stream.fail(ProtocolError("AUTH without an authentication method in CONNECT", "MQTT-4.12.0-6"))
        elif auth.method != exchange.method:
            self._stream.fail(ProtocolError("AUTH with another method than CONNECT", "MQTT-4.12.0-5"))
        elif is_first and self._connection.state != OPEN:
            self._stream.fail(ProtocolError("re-authentication before CONNACK", "MQTT-4.12.1-1"))
        elif is_first and (excess := self._connection.reauthentication_refusal()) is not None:
            self._stream.fail(excess)
        else:
            self._step(exchange, auth.data, is_first)

    def _step(self, exchange: Exchange, data: bytes | None, is_first: bool) -> None:
        self._authenticator.step(exchange, data, is_first, self._answered, self._not_answered, self._failed)

    def _answered(self, answer: ExchangeAnswer) -> None:
        exchange = self._exchange
        connection = self._connection
        assert exchange is not None
        if connection.state >= CLOSING:
            return
        if answer.identity is None:
            self._stream.send(Auth(ReasonCode.CONTINUE_AUTHENTICATION, exchange.method, answer.data))
            self._stream.resume_reading(OPENING)
        elif connection.state == OPEN:
            self._stream.send(Auth(ReasonCode.SUCCESS, exchange.method, answer.data))
        elif self._connect is not None and connection.negotiation is not None:
            connection.negotiation.authenticated(answer.data)
            self._stream.pause_reading(OPENING)
            self._stream.accepted(self._connect, answer.identity)
            self._connect = None

    def _not_answered(self, refusal: Refused) -> None:
        if self._connection.state == OPEN:
            self._stream.fail(refusal)
        else:
            self._stream.refused(refusal)

    def _failed(self) -> None:
        if self._connection.state == OPEN:
            self._stream.fail(Refused("authentication failed", ReasonCode.UNSPECIFIED_ERROR))
        else:
            self._stream.close(ReasonCode.SERVER_UNAVAILABLE, "authentication failed")
