"""Topic names and topic filters: validation and matching (3.1.1 section 4.7).

Owns: the rules of `/`, `+`, `#` and `$`. Comparison is by character, nothing is normalised.
Never: a trie or a store.
"""

from typing import Final

from embermq.protocol.errors import MalformedPacket

TOPIC_BYTES_MAX: Final = 65_535
SHARE_PREFIX: Final = "$share/"


def check_text(text: str) -> str | None:
    """Why a decoded string is not an MQTT string (1.5.3), or None. Strict decoding has refused surrogates already."""
    if "\x00" in text:
        return "U+0000 in a string"
    return None


def decode_text(raw: bytes, utf8_clause: str, null_clause: str) -> str:
    """Bytes as an MQTT string; the clauses are those of the protocol that is read.

    Python's strict codec refuses surrogates and overlong forms and keeps a U+FEFF.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedPacket(f"string is not UTF-8: {error.reason}", utf8_clause) from None
    problem = check_text(text)
    if problem is not None:
        raise MalformedPacket(problem, null_clause)
    return text


def check_topic_name(topic_name: str) -> str | None:
    """Why a topic name is not valid (4.7.3, 3.3.2-2), or None."""
    if not topic_name:
        return "empty topic name"
    if "+" in topic_name or "#" in topic_name:
        return "wildcard in a topic name"
    return check_text(topic_name)


def check_topic_filter(topic_filter: str) -> str | None:
    """Why a topic filter is not valid (4.7.1, 4.7.3), or None."""
    if not topic_filter:
        return "empty topic filter"
    hash_at = topic_filter.find("#")
    if hash_at >= 0:
        if hash_at != len(topic_filter) - 1:
            return "'#' is not the last character of the filter"
        if hash_at > 0 and topic_filter[hash_at - 1] != "/":
            return "'#' does not occupy a whole level"
    if "+" in topic_filter:
        for level in topic_filter.split("/"):
            if "+" in level and level != "+":
                return "'+' does not occupy a whole level"
    return check_text(topic_filter)


def is_shared(topic_filter: str) -> bool:
    """Whether a filter asks for a shared subscription (5.0, 4.8.2)."""
    return topic_filter.startswith(SHARE_PREFIX)


def filter_of_share(share_filter: str) -> str:
    """The topic filter behind the share name; empty if the share name or the filter is not valid (MQTT-4.8.2-1, -2)."""
    name, _, topic_filter = share_filter[len(SHARE_PREFIX) :].partition("/")
    if not name or "+" in name or "#" in name or check_topic_filter(topic_filter) is not None:
        return ""
    return topic_filter


def has_wildcard(topic_filter: str) -> bool:
    """Whether a valid filter can match more than one topic name."""
    return "+" in topic_filter or topic_filter.endswith("#")


def matches(topic_filter: str, topic_name: str) -> bool:
    """Whether a valid filter matches a valid topic name (4.7.1, 4.7.2)."""
    if topic_filter == topic_name:
        return True
    filter_levels = topic_filter.split("/")
    name_levels = topic_name.split("/")
    # 4.7.2-1: a filter that starts with a wildcard does not match a name that starts with '$'.
    if topic_name.startswith("$") and filter_levels[0] in ("+", "#"):
        return False
    last = len(filter_levels) - 1
    for depth, level in enumerate(filter_levels):
        if level == "#":
            return True
        if depth >= len(name_levels) or level not in ("+", name_levels[depth]):
            return False
        # 'a/#' matches its parent 'a' as well (4.7.1.2).
        if depth == last - 1 and filter_levels[last] == "#" and len(name_levels) == last:
            return True
    return len(name_levels) == len(filter_levels)


def intersection(first: str, second: str) -> str | None:
    """The filter that matches what both filters match; None if they have nothing in common."""
    ones = first.split("/")
    others = second.split("/")
    for one, other in ((ones[0], others[0]), (others[0], ones[0])):
        if one in ("+", "#") and other.startswith("$"):
            return None
    levels: list[str] = []
    for depth in range(max(len(ones), len(others))):
        if depth < len(ones) and ones[depth] == "#":
            return "/".join(levels + others[depth:]) or None  # no topic name is empty
        if depth < len(others) and others[depth] == "#":
            return "/".join(levels + ones[depth:]) or None
        if depth >= len(ones) or depth >= len(others):
            return None
        if ones[depth] == "+":
            levels.append(others[depth])
        elif others[depth] in ("+", ones[depth]):
            levels.append(ones[depth])
        else:
            return None
    return "/".join(levels)


def covers(granted: str, asked: str) -> bool:
    """Whether every topic name that the filter `asked` matches is matched by the filter `granted` as well."""
    granted_levels = granted.split("/")
    asked_levels = asked.split("/")
    if granted_levels[0] in ("+", "#") and asked_levels[0].startswith("$"):
        return False
    for depth, level in enumerate(granted_levels):
        if level == "#":
            return True
        if depth >= len(asked_levels):
            return False
        asked_level = asked_levels[depth]
        if asked_level == "#" or (level != "+" and level != asked_level):
            return False
        if depth == len(asked_levels) - 1 and granted_levels[depth + 1 :] == ["#"]:
            return True
    return len(asked_levels) == len(granted_levels)
