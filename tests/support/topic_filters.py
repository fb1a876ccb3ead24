"""Topic filters in a second way, to compare with."""

import re


def expression(topic_filter: str) -> re.Pattern[str]:
    """4.7.1 and 4.7.2 as a regular expression."""
    text = "(?!\\$)" if topic_filter[0] in "+#" else ""
    for number, level in enumerate(topic_filter.split("/")):
        slash = "/" if number else ""
        if level == "#":
            text += "(/.*)?" if number else ".*"
        else:
            text += slash + ("[^/]*" if level == "+" else re.escape(level))
    return re.compile(text)
