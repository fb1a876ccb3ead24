"""SCRAM-SHA-256 against the password file, as an `Exchange` of MQTT 5.

Owns: the two rounds of SCRAM in the shape of an exchange, and its failures as refusals.
Never: the file. The credential of a user name is looked up when an exchange begins: a re-authentication uses the file
that was read last.
"""

from collections.abc import Callable
from typing import Final, final

from embermq.access.scram import METHOD, ScramCredential, ScramError, ScramExchange
from embermq.broker.access import Exchange, ExchangeAnswer, Identity
from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode

ROUNDS: Final = 2


@final
class PasswordFileExchange(Exchange):
    """A client proves that it knows a user's password without sending it.

    `credential_of` has an answer for every user name, a dummy credential for one that does not exist.
    `failed` is called for each proof that is wrong. `required_user_name` is the only one that is accepted; None is any.
    `prefix`: of the identity's name.
    """

    def __init__(
        self,
        credential_of: Callable[[str], ScramCredential],
        client_id: str,
        failed: Callable[[], None],
        required_user_name: str | None,
        prefix: str = "",
    ) -> None:
        super().__init__(METHOD, rounds_max=ROUNDS)
        self._credential_of: Final = credential_of
        self._client_id: Final = client_id
        self._failed: Final = failed
        self._required_user_name: Final = required_user_name
        self._prefix: Final = prefix
        self._scram = ScramExchange()
        self._credential: ScramCredential | None = None  # by which the client has to prove itself

    def first_answer(self, data: bytes | None, nonce: bytes) -> ExchangeAnswer:
        self._scram = ScramExchange()
        try:
            user_name = self._scram.read_client_first(data or b"")
        except ScramError as error:
            raise Refused(error.detail, error.reason) from None
        if self._required_user_name is not None and user_name != self._required_user_name:
            raise Refused(
                f"user {user_name!r} has the certificate of {self._required_user_name!r}", ReasonCode.NOT_AUTHORIZED
            )
        self._credential = self._credential_of(user_name)
        return ExchangeAnswer(self._scram.challenge(self._credential, nonce))

    def next_answer(self, data: bytes | None) -> ExchangeAnswer:
        user_name = self._scram.user_name
        try:
            server_final = self._scram.verify(data or b"")
        except ScramError as error:
            self._failed()
            raise Refused(f"{error.detail} (user {user_name!r})", error.reason) from None
        if self._credential is None or self._credential_of(user_name).text() != self._credential.text():
            raise Refused(f"user {user_name!r} has another password by now", ReasonCode.NOT_AUTHORIZED)
        return ExchangeAnswer(server_final, Identity(self._prefix + user_name, self._client_id))
