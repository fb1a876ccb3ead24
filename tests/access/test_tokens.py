"""The token file: what `ember token` writes is read back, and the token is in no file."""

import stat
from pathlib import Path

import pytest

from embermq.access.tokens import TokenHolder, delete_token, parse_tokens, read_tokens, token_hash, write_token
from embermq.errors import ConfigError
from support.ember_command import ember, sentence


def test_a_token_belongs_to_its_holder_and_only_its_hash_is_stored(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# ours\n")
    token = write_token(file, "grafana", "viewer")
    other = write_token(file, "ann", "operator")
    assert read_tokens(file) == {
        token_hash(token): TokenHolder("grafana", "viewer"),
        token_hash(other): TokenHolder("ann", "operator"),
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert token not in file.read_text() and file.read_text().startswith("# ours\n")
    newer = write_token(file, "grafana", "operator")
    assert {holder.name for holder in read_tokens(file).values()} == {"ann", "grafana"}
    assert token_hash(token) not in read_tokens(file) and token_hash(newer) in read_tokens(file)
    assert delete_token(file, "grafana") and not delete_token(file, "grafana")


def test_wrong_lines_are_named() -> None:
    good = token_hash("x")
    for line in ("nonsense", f"a:boss:{good}", f":viewer:{good}", "a:viewer:abc", f"a:viewer:{good.upper()}"):
        with pytest.raises(ConfigError, match="f, line 2: expected 'name:role:hash'"):
            parse_tokens(f"\n{line}\n", "f")
    with pytest.raises(ConfigError, match="line 2: 'a' is named twice"):
        parse_tokens(f"a:viewer:{good}\na:viewer:{token_hash('y')}\n", "f")


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    made = ember("token", file, "ann", "--role", "operator")
    assert made.code == 0 and token_hash(made.text.strip()) in read_tokens(file)
    assert "cannot be shown again" in made.errors
    assert ember("token", file, "ann", "--delete").text == f"removed ann from {file}\n"
    assert "has no token of 'ann'" in sentence(ember("token", file, "ann", "--delete"))
    assert "expected viewer, reader or operator" in sentence(ember("token", file, "ann", "--role", "boss"))
    for name in ("a:b", "", " a", "#a", "a\nb"):
        assert "expected printable characters" in sentence(ember("token", file, name))
