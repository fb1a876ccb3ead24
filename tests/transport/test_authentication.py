"""Authentication: at once, or on threads; how many may wait; and no answer after the end."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable

import pytest

from embermq.broker.access import Access, Identity
from embermq.protocol.errors import Refused
from embermq.protocol.packets import Connect
from embermq.protocol.reasons import ReasonCode
from embermq.transport.authentication import Authenticator


class GatedAccess(Access):
    """Rules that answer when the gate is open: 'bad' is refused, 'broken' raises."""

    def __init__(self) -> None:
        super().__init__(slow=True, unrestricted=True)
        self.gate = threading.Event()
        self.asked: list[str | None] = []

    def authenticate(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity:
        assert self.gate.wait(10)
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

    def ask(self, authenticator: Authenticator, user_name: str, is_slow: bool = True) -> None:
        authenticator.authenticate(
            Connect("client", user_name=user_name),
            "certified",
            lambda identity: self.all.append(f"accepted {identity.user_name}"),
            lambda refusal: self.all.append(f"refused {refusal.reason:#x}"),
            lambda: self.all.append("failed"),
            is_slow=is_slow,
        )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def run(scenario: Callable[[GatedAccess, Answers], Awaitable[None]]) -> None:
    async def whole() -> None:
        await scenario(GatedAccess(), Answers())

    asyncio.run(whole())


def test_quick_rules_answer_at_once_and_begin_no_turn() -> None:
    async def scenario(access: GatedAccess, answers: Answers) -> None:
        access.gate.set()
        authenticator = Authenticator(access, answers.begin_turn, threads=1)
        answers.ask(authenticator, "ann", is_slow=False)
        answers.ask(authenticator, "bad", is_slow=False)
        assert answers.all == ["accepted ann", "refused 0x86"]
        assert access.asked == ["certified", "certified"]

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
        authenticator = Authenticator(access, answers.begin_turn, threads=1, waiting_max=2)
        for user_name in ("ann", "bob", "cid"):
            answers.ask(authenticator, user_name)
        assert answers.all == ["refused 0x89"]
        access.gate.set()
        await until(lambda: len(answers.all) == 5)
        answers.ask(authenticator, "cid")
        await until(lambda: len(answers.all) == 7)
        assert answers.all[1:] == ["turn", "accepted ann", "turn", "accepted bob", "turn", "accepted cid"]
        authenticator.close()

    run(scenario)


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
        authenticator.close()
        access.gate.set()
        await until(lambda: len(access.asked) == 1)
        await asyncio.sleep(0)
        assert answers.all == []

    run(scenario)
