"""The access list: a wrong line is named. What its grants allow is in tests/broker/test_access.py."""

import pytest

from embermq.access.access_list import parse_access_list
from embermq.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("read a", "acl, line 1: expected 'all', 'anonymous', 'user NAME' or 'group NAME'"),
        ("all\nreed a", "acl, line 2: expected 'read', 'write', 'retain'"),
        ("all\nread", "acl, line 2: expected 'read', 'write', 'retain'"),
        ("all\nread a#", "acl, line 2: 'a#' is no topic filter"),
        ("all\nread +%u", "acl, line 2: '+%u' is no topic filter"),
        ("all\nread %x", "acl, line 2: '%x' is unknown"),
        ("all\nread a%", "acl, line 2: '%' is unknown"),
        ("user", "acl, line 1: 'user' needs a name"),
        ("see all", "acl, line 1: expected 'all', 'anonymous', 'user NAME' or 'group NAME'"),
        ("all\nsee", "acl, line 2: expected 'see all'"),
        ("all\nsee a/#", "acl, line 2: expected 'see all'"),
        ("group", "acl, line 1: 'group' needs a name"),
        ("user ann\nmember bob", "acl, line 2: expected 'member USER' in a section 'group NAME'"),
        ("group all\nmember", "acl, line 2: expected 'member USER' in a section 'group NAME'"),
        ("all\ndeny", "acl, line 2: expected 'read', 'write', 'retain'"),
        ("all\ndeny see all", "acl, line 2: expected 'read', 'write', 'retain'"),
        ("all\nread,see all", "acl, line 2: expected 'read', 'write', 'retain'"),
    ],
)
def test_a_bad_access_list_is_named_by_its_line(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_access_list(text, "acl")
    assert str(caught.value).startswith(sentence)
