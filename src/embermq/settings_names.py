"""Misspelt settings: the section or setting that was probably meant."""

from collections.abc import Sequence
from difflib import get_close_matches


def nearest(key: tuple[int | str, ...], known: Sequence[str]) -> str:
    """The section or setting that was probably meant; empty if none is near. `known` are all as `section.key`."""
    places = [(section, name) for section, _, name in (each.partition(".") for each in known)]
    if len(key) == 1:
        sections = list(dict.fromkeys(section for section, _ in places))
        return next(iter(get_close_matches(str(key[0]), sections, n=1)), "")
    section, name = str(key[0]), str(key[-1])
    names = [other for part, other in places if part == section]
    elsewhere = [f"{part}.{other}" for part, other in places if other == name]
    if elsewhere and not get_close_matches(name, names, n=1, cutoff=0.8):
        return elsewhere[0]
    near = get_close_matches(name, names, n=1)
    if near:
        return f"{section}.{near[0]}"
    return next(iter(get_close_matches(f"{section}.{name}", known, n=1)), "")
