"""Protobuf: payloads that are one message of a type in a descriptor set, as `protoc --descriptor_set_out` writes it.

Owns: how a message becomes a document: its fields by name, an enum as the name of its value, google.protobuf.Timestamp
as an instant. A field that is not set is null where Protobuf tells it from one with its default value.
"""

from collections.abc import Callable
from datetime import UTC
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from embermq.lake.errors import LakeError
from embermq.lake.payloads.values import Misfit

SET_BYTES_MAX: Final = 16 << 20
_TIMESTAMP: Final = "google.protobuf.Timestamp"


def read_descriptors(path: Path, message: str) -> bytes:
    """A descriptor set. LakeError if it cannot be used, or does not have the message."""
    try:
        with path.open("rb") as file:
            found = file.read(SET_BYTES_MAX + 1)
    except OSError as error:
        raise LakeError(f"{path}: {error.strerror}") from None
    if len(found) > SET_BYTES_MAX:
        raise LakeError(f"{path}: expected a descriptor set of at most {SET_BYTES_MAX} bytes")
    try:
        _message_class(found, message)
    except LakeError as error:
        raise LakeError(f"{path}: {error}") from None
    return found


@lru_cache(256)
def _message_class(descriptors: bytes, message: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except KeyError:
        raise LakeError(f"there is no message {message}, with its package before it, in the descriptor set") from None
    except (DecodeError, TypeError, ValueError) as error:
        raise LakeError(
            "not a complete descriptor set, as `protoc --include_imports --descriptor_set_out=FILE` writes it "
            f"({error or type(error).__name__})"
        ) from None


def protobuf_documents(descriptors: bytes, message: str) -> Callable[[bytes], Any]:
    """A function that gives the one message that a payload is."""
    from google.protobuf.message import DecodeError

    made = _message_class(descriptors, message)

    def document(payload: bytes) -> Any:
        try:
            found = made.FromString(payload)
        except DecodeError as error:
            raise Misfit(f"not a message {message} ({str(error).rpartition(': ')[2]})") from None
        return _document(found)

    return document


def _document(message: Any) -> Any:
    """A message as a document. Protobuf reads no message that is nested more than 100 deep."""
    if message.DESCRIPTOR.full_name == _TIMESTAMP:
        try:
            return message.ToDatetime(tzinfo=UTC)
        except (ValueError, OverflowError):
            raise Misfit("a timestamp outside the years 1 to 9999") from None
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if not field.is_repeated:
            found[field.name] = _value(field, value)
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            of_value = field.message_type.fields_by_name["value"]
            found[field.name] = {str(key): _value(of_value, each) for key, each in value.items()}
        else:
            found[field.name] = [_value(field, each) for each in value]
    return found


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _document(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    return value
