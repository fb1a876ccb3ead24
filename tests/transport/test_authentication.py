"""Authentication: at once, or on threads; exchanges; how many may wait; and no answer after the end."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from embermq.access.file_access import FileAccess
from embermq.access.passwords import write_password
from embermq.broker.access import Access, Exchange, ExchangeAnswer, Identity
from embermq.protocol.errors import Refused
from embermq.protocol.packets import Connect
from embermq.protocol.reasons import ReasonCode
from embermq.transport.authentication import NONCE_BYTES, Authenticator
from support.scram_client import ScramClient


class GatedAccess(Access):
    """Rules that answer when the gate is open: 'bad' is refused, 'broken' raises."""

    def __init__(self, slow: bool = True) -> None:
        super().__init__(slow=slow, unrestricted=True)
        self.gate = threading.Event()
        self.begun = threading.Event()  # a thread has come to the gate
        self.asked: list[str | None] = []

    def queue_for(self, user_name: str | None, password: bytes | None, certificate_name: str | None) -> str:
        return "" if user_name is None else user_name.partition("-")[0]

    def authenticate(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity:
        self.begun.set()
        assert self.gate.wait(60)
        self.asked.append(certificate_name)
        if user_name == "bad":
            raise Refused("not known", reason=ReasonCode.BAD_USER_NAME_OR_PASSWORD)
        if user_name == "broken":
            raise OSError("the directory cannot be reached")
        return Identity(user_name or "", client_id)

    def may_publish(self, identity: Identity, topic_name: str, retain: bool) -> bool:
        return True

    def may_subscribe(self, identity: Identity, topic_filter: str) -> bool:
        return True


class Answers:
    """What came of each question, in order, with the turns that were begun."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def begin_turn(self) -> int:
        self.all.append("turn")
        return 0

    def ask(self, authenticator: Authenticator, user_name: str, is_wanted: bool = True) -> None:
        authenticator.authenticate(
            Connect("client", user_name=user_name),
            "certified",
            lambda identity: self.all.append(f"accepted {identity.user_name}"),
            lambda refusal: self.all.append(f"refused {refusal.reason:#x}"),
            lambda: self.all.append("failed"),
            lambda: is_wanted,
        )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def run(scenario: Callable[[GatedAccess, Answers], Awaitable[None]]) -> None:
    async def whole() -> None:
        await scenario(GatedAccess(), Answers())

    asyncio.run(whole())


def test_quick_rules_answer_at_once_and_begin_no_turn() -> None:
    async def scenario(_: GatedAccess, answers: Answers) -> None:
        access = GatedAccess(slow=False)
        access.gate.set()
        authenticator = Authenticator(access, answers.begin_turn, threads=1)
        answers.ask(authenticator, "ann")
        answers.ask(authenticator, "bad")
        assert answers.all == ["accepted ann", "refused 0x86"]
        assert access.asked == ["certified", "certified"]

    run(scenario)


def test_an_identity_is_told_at_once_unless_the_rules_are_slow() -> None:
    async def scenario(slow: GatedAccess, answers: Answers) -> None:
        access = GatedAccess(slow=False)
        access.gate.set()
        quick = Authenticator(access, answers.begin_turn, threads=1)
        identity = quick.identity_now(Connect("client", user_name="ann"), "certified")
        assert identity is not None and identity.user_name == "ann"
        with pytest.raises(Refused):
            quick.identity_now(Connect("client", user_name="bad"), None)
        assert Authenticator(slow, answers.begin_turn, threads=1).identity_now(Connect("client"), None) is None
        assert (access.asked, slow.asked, answers.all) == (["certified", None], [], [])

    run(scenario)


def test_slow_rules_answer_in_a_turn_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(access: GatedAccess, answers: Answers) -> None:
        authenticator = Authenticator(access, answers.begin_turn, threads=1)
        for user_name in ("ann", "bad", "broken"):
            answers.ask(authenticator, user_name)
        await asyncio.sleep(0)
        assert answers.all == []
        access.gate.set()
        await until(lambda: len(answers.all) == 6)
        assert answers.all == ["turn", "accepted ann", "turn", "refused 0x86", "turn", "failed"]
        authenticator.close()

    with caplog.at_level(logging.ERROR, "embermq"):
        run(scenario)
    [record] = caplog.records
    assert record.exc_info is not None


def test_no_more_than_the_bound_wait_and_an_answer_makes_room() -> None:
    async def scenario(access: GatedAccess, answers: Answers) -> None:
        authenticator = Authenticator(access, answers.begin_turn, threads=1, waiting_max=1)
        for user_name in ("ann", "bob", "cid"):  # the first is being checked, the second waits
            answers.ask(authenticator, user_name)
        assert answers.all == ["refused 0x89"]
        access.gate.set()
        await until(lambda: len(answers.all) == 5)
        answers.ask(authenticator, "cid")
        await until(lambda: len(answers.all) == 7)
        assert answers.all[1:] == ["turn", "accepted ann", "turn", "accepted bob", "turn", "accepted cid"]
        authenticator.close()

    run(scenario)


def test_many_checks_of_one_queue_do_not_delay_another() -> None:
    async def scenario(access: GatedAccess, answers: Answers) -> None:
        authenticator = Authenticator(access, answers.begin_turn, threads=1, queue_max=3)
        for number in range(5):
            answers.ask(authenticator, f"bot-{number}")
        assert answers.all == ["refused 0x89"]  # one is being checked, three wait
        answers.ask(authenticator, "ann")
        access.gate.set()
        await until(lambda: len(answers.all) == 11)
        accepted = [line for line in answers.all if line.startswith("accepted")]
        assert accepted == [f"accepted {name}" for name in ("bot-0", "bot-1", "ann", "bot-2", "bot-3")]
        authenticator.close()

    run(scenario)


def test_a_client_that_has_gone_is_not_checked() -> None:
    async def scenario(access: GatedAccess, answers: Answers) -> None:
        authenticator = Authenticator(access, answers.begin_turn, threads=1)
        answers.ask(authenticator, "ann")
        for _ in range(10):
            answers.ask(authenticator, "bot", is_wanted=False)
        answers.ask(authenticator, "bob")
        access.gate.set()
        await until(lambda: len(answers.all) == 4)
        assert answers.all == ["turn", "accepted ann", "turn", "accepted bob"]
        assert len(access.asked) == 2
        authenticator.close()

    run(scenario)


def test_proven_passwords_and_clients_without_one_wait_for_no_thread(tmp_path: Path) -> None:
    write_password(tmp_path / "passwords", "ann", b"secret")
    access = FileAccess(password_file=tmp_path / "passwords", allow_anonymous=True)
    assert access.queue_for(None, None, None) is None
    assert access.queue_for("ann", b"secret", None) == "user ann"
    access.authenticate("client", "ann", b"secret", None)
    assert access.queue_for("ann", b"secret", None) is None
    assert access.queue_for("ann", b"wrong", None) == "user ann"
    assert access.queue_for("bob", b"x", None) == access.queue_for("cid", b"x", None) == ""


def test_one_object_does_not_delay_another() -> None:
    async def scenario(access: GatedAccess, answers: Answers) -> None:
        flooded = Authenticator(access, answers.begin_turn, threads=1, waiting_max=2)
        answers.ask(flooded, "ann")
        ready = GatedAccess()
        ready.gate.set()
        other = Authenticator(ready, answers.begin_turn, threads=1)
        answers.ask(other, "bob")
        await until(lambda: len(answers.all) == 2)
        assert answers.all == ["turn", "accepted bob"]
        access.gate.set()
        flooded.close()
        other.close()

    run(scenario)


def test_after_the_end_no_answer_comes() -> None:
    async def scenario(access: GatedAccess, answers: Answers) -> None:
        authenticator = Authenticator(access, answers.begin_turn, threads=1)
        answers.ask(authenticator, "ann")
        answers.ask(authenticator, "bob")
        await until(access.begun.is_set)
        authenticator.close()
        access.gate.set()
        await until(lambda: access.asked != [])
        await asyncio.sleep(0)
        assert len(access.asked) == 1  # bob was still waiting, and is not asked about
        assert answers.all == []

    run(scenario)


# -- exchanges -------------------------------------------------------------------------------------------------------


class GatedExchange(Exchange):
    """Answers with its nonce when the gate is open, then with the client's data as the user name; 'broken' raises."""

    def __init__(self, slow: bool) -> None:
        super().__init__("GATED", slow=slow)
        self.gate = threading.Event()
        self.threads: list[int] = []

    def first_answer(self, data: bytes | None, nonce: bytes) -> ExchangeAnswer:
        assert self.gate.wait(60)
        self.threads.append(threading.get_ident())
        return ExchangeAnswer(nonce)

    def next_answer(self, data: bytes | None) -> ExchangeAnswer:
        assert self.gate.wait(60)
        if data == b"bad":
            raise Refused("not known", reason=ReasonCode.NOT_AUTHORIZED)
        if data == b"broken":
            raise OSError("the directory cannot be reached")
        return ExchangeAnswer(None, Identity((data or b"").decode(), "client"))


class ExchangeAnswers(Answers):
    """What came of each message of an exchange."""

    def __init__(self) -> None:
        super().__init__()
        self.data: list[bytes | None] = []

    async def until_count(self, count: int) -> None:
        await until(lambda: len(self.all) == count)

    def answered(self, answer: ExchangeAnswer) -> None:
        self.data.append(answer.data)
        self.all.append("more" if answer.identity is None else f"accepted {answer.identity.user_name}")

    def refused(self, refusal: Refused) -> None:
        self.all.append(f"refused {refusal.reason:#x}")

    def failed(self) -> None:
        self.all.append("failed")

    def begin(self, authenticator: Authenticator, exchange: Exchange, data: bytes | None = None) -> None:
        authenticator.step(exchange, data, True, self.answered, self.refused, self.failed)

    def proceed(self, authenticator: Authenticator, exchange: Exchange, data: bytes | None = None) -> None:
        authenticator.step(exchange, data, False, self.answered, self.refused, self.failed)


def test_scram_logs_in_at_once_and_begins_no_turn(tmp_path: Path) -> None:
    write_password(tmp_path / "passwords", "ann", b"secret")
    access = FileAccess(password_file=tmp_path / "passwords")

    async def scenario() -> None:
        answers = ExchangeAnswers()
        authenticator = Authenticator(access, answers.begin_turn, threads=1)
        exchange = authenticator.begin_exchange("SCRAM-SHA-256", "client", None)
        client = ScramClient("ann", "secret")
        challenges = set()
        for _ in range(2):  # CONNECT, and a re-authentication
            answers.begin(authenticator, exchange, client.first)
            challenge = answers.data[-1]
            assert challenge is not None
            challenges.add(challenge)
            answers.proceed(authenticator, exchange, client.final(challenge))
            assert client.accepts(answers.data[-1])
        assert answers.all == ["more", "accepted ann"] * 2
        assert len(challenges) == 2  # each with a nonce of its own
        answers.begin(authenticator, exchange, client.first)
        answers.proceed(authenticator, exchange, b"c=biws")
        assert answers.all[4:] == ["more", "refused 0x87"]
        with pytest.raises(Refused) as caught:
            authenticator.begin_exchange("PLAIN", "client", None)
        assert caught.value.reason is ReasonCode.BAD_AUTHENTICATION_METHOD

    asyncio.run(scenario())


def test_a_nonce_is_printable_and_never_the_same() -> None:
    async def scenario() -> None:
        answers = ExchangeAnswers()
        authenticator = Authenticator(GatedAccess(), answers.begin_turn, threads=1)
        for _ in range(100):
            exchange = GatedExchange(slow=False)
            exchange.gate.set()
            answers.begin(authenticator, exchange)
        assert len(set(answers.data)) == 100
        for nonce in answers.data:
            assert nonce is not None and len(nonce) >= NONCE_BYTES and nonce.isascii() and b"," not in nonce
            assert nonce.decode().isprintable()

    asyncio.run(scenario())


def test_a_slow_exchange_answers_in_turns_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        answers = ExchangeAnswers()
        authenticator = Authenticator(GatedAccess(), answers.begin_turn, threads=1)
        for data in (b"ann", b"bad", b"broken"):
            before = len(answers.all)
            exchange = GatedExchange(slow=True)
            answers.begin(authenticator, exchange)
            await asyncio.sleep(0)
            assert len(answers.all) == before
            exchange.gate.set()
            await answers.until_count(before + 2)
            assert threading.get_ident() not in exchange.threads
            answers.proceed(authenticator, exchange, data)
            await answers.until_count(before + 4)
        ends = answers.all[3::4]
        assert ends == ["accepted ann", "refused 0x87", "failed"]
        assert answers.all[:3] == ["turn", "more", "turn"]
        authenticator.close()

    with caplog.at_level(logging.ERROR, "embermq"):
        asyncio.run(scenario())
    assert len(caplog.records) == 1


def test_a_client_has_to_wait_for_the_answer_of_a_slow_exchange() -> None:
    async def scenario() -> None:
        answers = ExchangeAnswers()
        authenticator = Authenticator(GatedAccess(), answers.begin_turn, threads=2)
        exchange = GatedExchange(slow=True)
        answers.begin(authenticator, exchange)
        answers.proceed(authenticator, exchange, b"ann")
        answers.begin(authenticator, exchange)
        assert answers.all == ["refused 0x82", "refused 0x82"]
        exchange.gate.set()
        await until(lambda: len(answers.all) == 4)
        assert answers.all[2:] == ["turn", "more"]
        authenticator.close()

    asyncio.run(scenario())


def test_slow_exchanges_count_among_those_that_wait() -> None:
    async def scenario() -> None:
        answers = ExchangeAnswers()
        authenticator = Authenticator(GatedAccess(), answers.begin_turn, threads=1, waiting_max=1)
        exchanges = [GatedExchange(slow=True) for _ in range(3)]  # one is being asked, one waits
        for exchange in exchanges:
            answers.begin(authenticator, exchange)
        assert answers.all == ["refused 0x89"]
        exchanges[0].gate.set()
        authenticator.close()

    asyncio.run(scenario())
