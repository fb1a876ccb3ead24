"""Access rules of another package, found by the name of its entry point in the group `embermq.access`.

Owns: the sentence for one that cannot be used.
"""

from importlib.metadata import entry_points
from typing import Final

from embermq.broker.access import Access
from embermq.errors import ConfigError

GROUP: Final = "embermq.access"


def load_plugin(name: str) -> Access:
    """Make the rules of a plug-in; a ConfigError says why that is not possible."""
    found = [each for each in entry_points(group=GROUP) if each.name == name]
    if not found:
        names = ", ".join(sorted({each.name for each in entry_points(group=GROUP)})) or "none"
        raise ConfigError(
            f"access.plugin: no installed package has the entry point {name!r} in {GROUP} (there: {names})"
        )
    try:
        kind = found[0].load()
    except Exception as error:  # whatever importing another package does
        raise ConfigError(f"access.plugin: {name} cannot be imported: {type(error).__name__}: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, Access)):
        raise ConfigError(f"access.plugin: {found[0].value} is no subclass of embermq.broker.access.Access")
    try:
        return kind()  # type: ignore[call-arg]  # the fields of `Access` are set by the plug-in
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"access.plugin: {name} cannot be made: {type(error).__name__}: {error}") from error
