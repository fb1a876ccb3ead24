"""The authentication method that docs/access.md shows as an example works."""

import hmac
import re
from pathlib import Path

import pytest

from embermq.broker.access import Access
from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode

PAGE = Path(__file__).parent.parent.parent / "docs" / "access.md"


@pytest.fixture(scope="module")
def names() -> dict[str, object]:
    [code] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    exec(code, names)
    return names


@pytest.fixture
def access(names: dict[str, object]) -> Access:
    device_access = names["DeviceAccess"]
    assert isinstance(device_access, type)
    access = device_access()
    assert isinstance(access, Access)
    return access


def test_a_device_with_its_key_is_authenticated_and_authenticates_again(
    access: Access, names: dict[str, object]
) -> None:
    keys = names["KEYS"]
    assert isinstance(keys, dict)
    exchange = access.begin_exchange("DEVICE-KEY", "c1", None)
    for nonce in (b"first nonce", b"second nonce"):
        challenge = exchange.begin(None, nonce).data
        assert challenge == nonce
        answer = exchange.proceed(b"pump-7:" + hmac.digest(keys["pump-7"], challenge, "sha256"))
        assert answer.data is None and answer.identity is not None
        assert (answer.identity.user_name, answer.identity.client_id) == ("pump-7", "c1")


@pytest.mark.parametrize(
    "data", [None, b"", b"pump-7", b"pump-7:wrong", b"eve:" + hmac.digest(b"unknown", b"nonce", "sha256"), b"\xff:"]
)
def test_others_are_refused(access: Access, data: bytes | None) -> None:
    exchange = access.begin_exchange("DEVICE-KEY", "c1", None)
    exchange.begin(None, b"nonce")
    with pytest.raises(Refused) as caught:
        exchange.proceed(data)
    assert caught.value.reason is ReasonCode.NOT_AUTHORIZED


def test_another_method_is_refused(access: Access) -> None:
    with pytest.raises(Refused) as caught:
        access.begin_exchange("SCRAM-SHA-256", "c1", None)
    assert caught.value.reason is ReasonCode.BAD_AUTHENTICATION_METHOD
