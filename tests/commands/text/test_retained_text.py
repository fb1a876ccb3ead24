"""Lines of an import: what is no message is named, whatever it is."""

import pytest

from embermq.commands.text.retained_text import from_json


@pytest.mark.parametrize(
    "line", [b"[" * 200_000, b'{"topic": ' * 200_000, b"no JSON", b"1"], ids=["list", "object", "text", "number"]
)
def test_what_is_no_object_is_refused_however_deep(line: bytes) -> None:
    with pytest.raises(ValueError, match="expected a JSON object"):
        from_json(line)
