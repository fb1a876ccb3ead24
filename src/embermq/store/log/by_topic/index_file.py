"""The file of a topic index: an Arrow file (IPC) with a column of topics and one of lists of block numbers.

Owns: that form, read and written here without pyarrow, which the server does not have. It is the form of all versions.
Never: what is in the columns.

Such a file is a message with the schema, one with the rows, and a footer that says where they are. Each message is a
FlatBuffer: tables, whose fields are found by a vtable before them, and offsets that lead forward from where they stand.
"""

from collections.abc import Callable, Sequence
from struct import Struct, calcsize, error, pack, pack_into, unpack_from
from typing import Final, NamedTuple, TypeAlias

MAGIC: Final = b"ARROW1"

_CONTINUES: Final = 0xFFFF_FFFF
_MESSAGE_HEAD: Final = Struct("<II")
_BLOCK: Final = Struct("<qi4xq")  # where a message begins, the bytes of its FlatBuffer and head, those of its rows
_PAIR: Final = Struct("<qq")
_VERSION: Final = 4  # of the format: what Arrow calls V5
_SCHEMA, _RECORD_BATCH = 1, 3  # kinds of messages
_INT, _UTF8, _LIST = 2, 5, 12  # types of columns
_BUFFERS: Final = 7
"""Of the topics: which are null, ends, bytes. Of the lists: which are null, ends; of their numbers: null, values."""

_Writer: TypeAlias = Callable[[bytearray], int]
_Slot: TypeAlias = tuple[str, int] | _Writer | None
"""A field of a table: a number in a form of `struct`, something that is written behind the table, or nothing."""


class Columns(NamedTuple):
    """The columns as Arrow has them: ends are 32-bit integers, one more than rows, numbers are 32-bit integers."""

    rows: int
    topic_ends: bytes
    topics: bytes
    list_ends: bytes
    numbers: bytes


class IndexFile(NamedTuple):
    columns: Columns
    metadata: dict[bytes, bytes]


def to_file(columns: Columns, metadata: dict[bytes, bytes]) -> bytes:
    parts = (columns.topic_ends, columns.topics, columns.list_ends, columns.numbers)
    body = bytearray()
    buffers: list[tuple[int, int]] = []
    for part in (b"", parts[0], parts[1], b"", parts[2], b"", parts[3]):
        buffers.append((len(body), len(part)))
        body += part
        _pad(body, 64)
    count = len(columns.numbers) // 4
    nodes = [(columns.rows, 0), (columns.rows, 0), (count, 0)]  # lengths, and how many are null
    file = bytearray(MAGIC.ljust(8, b"\0"))
    schema = _schema(metadata)
    file += _message(_SCHEMA, schema, 0)
    begin = len(file)
    rows = _table(("q", columns.rows), _structs(_PAIR, nodes), _structs(_PAIR, buffers))
    file += _message(_RECORD_BATCH, rows, len(body))
    head_bytes = len(file) - begin
    file += body
    file += _MESSAGE_HEAD.pack(_CONTINUES, 0)
    batches = _structs(_BLOCK, [(begin, head_bytes, len(body))])
    footer = _root(_table(("h", _VERSION), schema, _structs(_BLOCK, []), batches))
    return bytes(file + footer + pack("<I", len(footer)) + MAGIC)


def from_file(data: bytes) -> IndexFile | None:
    """The columns of such a file; None if it is none."""
    try:
        return _parsed(data)
    except (error, IndexError, UnicodeDecodeError):
        return None


# -- reading -------------------------------------------------------------------------------------------------------


class _Found(NamedTuple):
    """A table, found at a position."""

    data: bytes
    at: int

    def place(self, slot: int) -> int:
        """Where a field is; 0 if it is left out."""
        vtable = self.at - int(unpack_from("<i", self.data, self.at)[0])
        (size,) = unpack_from("<H", self.data, vtable)
        if 4 + 2 * slot >= size:
            return 0
        (place,) = unpack_from("<H", self.data, vtable + 4 + 2 * slot)
        return self.at + place if place else 0

    def number(self, slot: int, form: str) -> int:
        place = self.place(slot)
        return int(unpack_from(f"<{form}", self.data, place)[0]) if place else 0

    def table(self, slot: int) -> "_Found":
        place = self.place(slot)
        if not place:
            raise IndexError
        return _Found(self.data, place + self.number(slot, "I"))

    def vector(self, slot: int) -> tuple[int, int]:
        """Where the elements of a vector are, and how many."""
        place = self.place(slot)
        if not place:
            return 0, 0
        at = place + self.number(slot, "I")
        return at + 4, unpack_from("<I", self.data, at)[0]

    def text(self, slot: int) -> bytes:
        at, size = self.vector(slot)
        return self.data[at : at + size]

    def tables(self, slot: int) -> list["_Found"]:
        at, count = self.vector(slot)
        places = range(at, at + 4 * count, 4)
        return [_Found(self.data, place + unpack_from("<I", self.data, place)[0]) for place in places]

    def structs(self, slot: int, form: Struct) -> list[tuple[int, ...]]:
        at, count = self.vector(slot)
        return [form.unpack_from(self.data, place) for place in range(at, at + form.size * count, form.size)]


def _parsed(data: bytes) -> IndexFile | None:
    if not data.startswith(MAGIC) or not data.endswith(MAGIC):
        return None
    footer_at = len(data) - len(MAGIC) - 4
    footer_at -= unpack_from("<I", data, footer_at)[0]
    if footer_at < len(MAGIC):
        return None
    footer = _Found(data, footer_at + unpack_from("<I", data, footer_at)[0])
    schema = footer.table(1)
    if not _fits(schema.tables(1)):
        return None
    metadata = {pair.text(0): pair.text(1) for pair in schema.tables(2)}
    batches = footer.structs(3, _BLOCK)
    if not batches:
        return IndexFile(Columns(0, bytes(4), b"", bytes(4), b""), metadata)
    if len(batches) > 1:
        return None
    columns = _columns(data, *batches[0])
    return None if columns is None else IndexFile(columns, metadata)


def _fits(fields: list[_Found]) -> bool:
    """Whether the columns have the names and types that they must have."""
    if [(field.text(0), field.number(2, "B")) for field in fields] != [(b"topic", _UTF8), (b"blocks", _LIST)]:
        return False
    numbers = fields[1].tables(5)
    return len(numbers) == 1 and numbers[0].number(2, "B") == _INT and numbers[0].table(3).number(0, "i") == 32


def _columns(data: bytes, begin: int, head_bytes: int, body_bytes: int) -> Columns | None:
    at = begin + _MESSAGE_HEAD.size
    message = _Found(data, at + unpack_from("<I", data, at)[0])
    rows = message.table(2)
    buffers = rows.structs(2, _PAIR)
    if message.number(1, "B") != _RECORD_BATCH or len(buffers) != _BUFFERS or rows.place(3):  # 3: it is compressed
        return None
    if any(nulls for _, nulls in rows.structs(1, _PAIR)):
        return None
    body = begin + head_bytes
    if body + body_bytes > len(data) or any(start < 0 or start + size > body_bytes for start, size in buffers):
        return None
    parts = [data[body + start : body + start + size] for start, size in buffers]
    count = rows.number(0, "q")
    found = Columns(count, parts[1] or bytes(4), parts[2], parts[4] or bytes(4), parts[6])
    ends = 4 * (count + 1)
    return found if len(found.topic_ends) == len(found.list_ends) == ends else None


# -- writing -------------------------------------------------------------------------------------------------------


def _schema(metadata: dict[bytes, bytes]) -> _Writer:
    item = _field(b"item", _INT, _table(("i", 32), ("B", 1)))  # signed
    fields = _tables([_field(b"topic", _UTF8, _table()), _field(b"blocks", _LIST, _table(), item)])
    pairs = _tables([_table(_text(key), _text(value)) for key, value in metadata.items()])
    return _table(("h", 0), fields, pairs)  # 0: little-endian


def _field(name: bytes, kind: int, described: _Writer, *children: _Writer) -> _Writer:
    return _table(_text(name), ("B", 1), ("B", kind), described, None, _tables(children))  # 1: it may be null


def _message(kind: int, header: _Writer, body_bytes: int) -> bytes:
    message = _root(_table(("h", _VERSION), ("B", kind), header, ("q", body_bytes)))
    return _MESSAGE_HEAD.pack(_CONTINUES, len(message)) + message


def _root(table: _Writer) -> bytes:
    buffer = bytearray(8)
    pack_into("<I", buffer, 0, table(buffer))
    _pad(buffer, 8)
    return bytes(buffer)


def _table(*slots: _Slot) -> _Writer:
    def write(buffer: bytearray) -> int:
        places, size = [], 4
        for slot in slots:
            width = calcsize(slot[0]) if isinstance(slot, tuple) else 4
            begin = -(-size // width) * width
            places.append(0 if slot is None else begin)
            size = size if slot is None else begin + width
        _pad(buffer, 8, 4 + 2 * len(slots))
        vtable = len(buffer)
        buffer.extend(pack(f"<{2 + len(slots)}H", 4 + 2 * len(slots), size, *places))
        at = len(buffer)
        buffer.extend(pack("<i", at - vtable).ljust(size, b"\0"))
        for slot, place in zip(slots, places, strict=True):
            if isinstance(slot, tuple):
                pack_into(f"<{slot[0]}", buffer, at + place, slot[1])
            elif slot is not None:
                pack_into("<I", buffer, at + place, slot(buffer) - at - place)
        return at

    return write


def _tables(tables: Sequence[_Writer]) -> _Writer:
    def write(buffer: bytearray) -> int:
        _pad(buffer, 4)
        at = len(buffer)
        buffer.extend(pack("<I", len(tables)) + bytes(4 * len(tables)))
        for number, table in enumerate(tables):
            place = at + 4 + 4 * number
            pack_into("<I", buffer, place, table(buffer) - place)
        return at

    return write


def _structs(form: Struct, values: Sequence[tuple[int, ...]]) -> _Writer:
    def write(buffer: bytearray) -> int:
        _pad(buffer, 8, 4)
        at = len(buffer)
        buffer.extend(pack("<I", len(values)))
        for value in values:
            buffer.extend(form.pack(*value))
        return at

    return write


def _text(text: bytes) -> _Writer:
    def write(buffer: bytearray) -> int:
        _pad(buffer, 4)
        at = len(buffer)
        buffer.extend(pack("<I", len(text)) + text + b"\0")
        return at

    return write


def _pad(buffer: bytearray, alignment: int, before: int = 0) -> None:
    """Zeros, so that what follows is aligned when `before` bytes more are written."""
    buffer.extend(bytes(-(len(buffer) + before) % alignment))
