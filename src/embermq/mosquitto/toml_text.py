"""ember.toml as a migration writes it."""

import json
from collections.abc import Mapping
from pathlib import Path


def settings_text(
    source: Path,
    sections: Mapping[str, Mapping[str, object]],
    tables: Mapping[str, list[dict[str, object]]],
) -> str:
    """The settings file. `tables`: the sections of which there may be several."""
    lines = [
        f"# Written by `ember migrate` from {json.dumps(str(source), ensure_ascii=False)}.",
        "# What is not set here is as `ember config sample` shows it.",
    ]
    for section, values in sections.items():
        if values:
            lines += ["", f"[{section}]", *_lines(values)]
    for name, several in tables.items():
        for values in several:
            lines += ["", f"[[{name}]]", *_lines(values)]
    return "\n".join(lines) + "\n"


def _lines(values: Mapping[str, object]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in values.items()]


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_lines(value)) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)  # for texts, numbers and truth values TOML is as JSON
