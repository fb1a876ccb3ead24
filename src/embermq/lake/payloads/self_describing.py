"""CBOR (RFC 8949) and MessagePack: documents that say the types of their values.

Owns: what of the two formats is read. Both libraries bound what a payload may ask for by the bytes that it has. A map
that has a name twice, a tag without a plain value and an extension type are refused; so are shared references, which
let a few bytes stand for a document that fills the memory.
"""

from collections.abc import Callable
from io import BytesIO
from typing import Any, Final

from embermq.lake.payloads.strict_json import unique_names
from embermq.lake.payloads.values import NOT_UTF8, Misfit

CBOR_DEPTH_MAX: Final = 128

# Tags that cbor2 decodes, and whose values are no document: big floats, references, rationals, regular expressions,
# MIME, UUID, addresses, sets.
_REFUSED_TAGS: Final = (5, 25, 28, 29, 30, 35, 36, 37, 52, 54, 256, 258, 260, 261, 43000)
_SELF_DESCRIBED: Final = 55799


def cbor_documents() -> Callable[[bytes], Any]:
    """A function that gives the one data item that a payload is."""
    import cbor2

    def refuse(*_: Any) -> Any:
        raise Misfit("a tag that is not read")

    decoders: dict[int, Callable[..., Any]] = dict.fromkeys(_REFUSED_TAGS, refuse)
    decoders[_SELF_DESCRIBED] = lambda value, _: value

    def document(payload: bytes) -> Any:
        stream = BytesIO(payload)
        decoder = cbor2.CBORDecoder(
            stream,
            tag_hook=refuse,
            semantic_decoders=decoders,
            read_size=1,  # with more, the stream does not say where the item ends
            max_depth=CBOR_DEPTH_MAX,
            allow_duplicate_keys=False,
            strict_hashable_types=True,
        )
        try:
            found = decoder.decode()
        except cbor2.CBORDecodeError as error:
            if isinstance(error.__cause__, Misfit):
                raise error.__cause__ from None
            raise Misfit(
                NOT_UTF8 if isinstance(error.__cause__, UnicodeDecodeError) else f"not CBOR: {error}"
            ) from None
        if stream.tell() < len(payload):
            raise Misfit("not CBOR: bytes after the data item")
        return found

    return document


def msgpack_documents() -> Callable[[bytes], Any]:
    """A function that gives the one object that a payload is."""
    import msgpack

    def refuse(code: int, _: bytes) -> Any:
        raise Misfit(f"the extension type {code} is not read")

    def document(payload: bytes) -> Any:
        try:
            return msgpack.unpackb(payload, timestamp=3, ext_hook=refuse, object_pairs_hook=unique_names)
        except UnicodeDecodeError:
            raise Misfit(NOT_UTF8) from None
        except msgpack.StackError:
            raise Misfit("nested too deeply") from None
        except (ValueError, OverflowError, TypeError) as error:  # also what msgpack itself raises
            raise Misfit(f"not MessagePack: {error or type(error).__name__}") from None

    return document
