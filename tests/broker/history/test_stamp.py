"""What a message of the past has besides what it had when it was published."""

from embermq.broker.history.stamp import stamped
from embermq.protocol.message_expiry import message_expires_us
from embermq.protocol.packets import Publish

TIME_US = 1_700_000_000_000_001
STAMP = b"\x26\x00\x0cember-offset\x00\x0217" + b"\x26\x00\x0aember-time\x00\x1b2023-11-14T22:13:20.000001Z"


def expiring(interval_s: int) -> Publish:
    properties = b"\x02" + interval_s.to_bytes(4, "big") + b"\x01\x01"
    return Publish("a", b"x", 1, True, properties=properties, expires_us=message_expires_us(properties, TIME_US))


def test_mqtt_5_gets_offset_and_time_after_the_properties_of_the_publisher() -> None:
    message = Publish("a", b"x", 1, True, properties=b"\x01\x01")
    assert stamped(message, 17, TIME_US, TIME_US, True) == Publish("a", b"x", 1, True, properties=b"\x01\x01" + STAMP)


def test_a_message_without_a_record_has_no_stamp() -> None:
    message = Publish("$SYS/broker/uptime", b"1 second")
    assert stamped(message, 0, 0, TIME_US, True) is message


def test_other_dialects_get_the_message_as_it_is() -> None:
    message = Publish("a", b"x", 2, properties=b"\x01\x01")
    assert stamped(message, 17, TIME_US, TIME_US, False) is message


def test_a_message_that_has_expired_since_has_no_expiry() -> None:
    message = expiring(10)
    at_us = message.expires_us
    assert stamped(message, 17, TIME_US, at_us - 1, False) is message
    assert stamped(message, 17, TIME_US, at_us, False) == Publish("a", b"x", 1, True, properties=b"\x01\x01")
    assert stamped(message, 17, TIME_US, at_us, True).properties == b"\x01\x01" + STAMP
    assert stamped(message, 17, TIME_US, at_us - 1, True).expires_us == at_us
