"""Code of other packages, found by the name of its entry point: access rules, hooks.

Owns: the sentence for one that cannot be used.
"""

from importlib.metadata import entry_points
from typing import TypeVar

from embermq.errors import ConfigError

T = TypeVar("T")


def make_plug_in(setting: str, name: str, group: str, base: type[T]) -> T:
    """An object of the class that an entry point of a group names; a ConfigError says why that is not possible.

    `setting` is the one that has the name, `base` what the class derives from.
    """
    installed = entry_points(group=group)
    found = [each for each in installed if each.name == name]
    if not found:
        there = ", ".join(sorted({each.name for each in installed})) or "none"
        raise ConfigError(f"{setting}: no installed package has the entry point {name!r} in {group} (there: {there})")
    try:
        kind = found[0].load()
    except Exception as error:  # whatever importing another package does
        raise ConfigError(f"{setting}: {name} cannot be imported: {type(error).__name__}: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, base)):
        expected = f"{base.__module__}.{base.__qualname__}"
        raise ConfigError(f"{setting}: {found[0].value} is no subclass of {expected}")
    try:
        return kind()
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{setting}: {name} cannot be made: {type(error).__name__}: {error}") from error
