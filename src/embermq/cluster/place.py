"""A node's place in the shared log: the file `cluster.json` of its data directory.

Owns: the file, and whether a directory belongs to a shared log.
Never: what follows from a block (`cluster.rules`).

The file may be older than the directory's log: the node reads again what is between. It is never newer: the log is
synced before it is written.
"""

import json
from pathlib import Path
from time import monotonic
from typing import Final

from embermq.cluster.blocks import Kind, decode
from embermq.cluster.rules import Rules, loaded
from embermq.cluster.sequencer import Sequencer, SequencerError, SharedLogLost
from embermq.store.engines.shared_log import PLACE
from embermq.store.log.identity import LogIdentity, read_identity, write_identity
from embermq.store.log.segments import replace_file

FIRST_BLOCK_S: Final = 20
"""How long the first block of the shared log is waited for."""


def read_place(directory: Path) -> tuple[str, Rules] | None:
    """The identity of the shared log, and what follows from its blocks up to a position; None if there is no file."""
    try:
        found = json.loads((directory / PLACE).read_bytes())
        return str(found["identity"]), loaded(found["rules"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise SharedLogLost(
            f"{directory / PLACE} is damaged: delete it, and the node reads the shared log from its beginning"
        ) from None


def write_place(directory: Path, identity: str, rules: Rules) -> None:
    """Write the file, durably. OSError as it comes."""
    replace_file(directory / PLACE, json.dumps({"identity": identity, "rules": rules.saved()}) + "\n")


def enter(directory: Path, sequencer: Sequencer) -> Rules:
    """Where a node with this data directory goes on in the shared log. An empty directory becomes one of its log.

    SequencerError: the directory or the shared log is another one than it was, or nothing has begun the shared log.
    """
    place = read_place(directory)
    if place is None:
        rules = Rules(position=sequencer.first())
        log_id = _log_id(sequencer, rules.position)
    else:
        identity, rules = place
        log_id = rules.log_id
        if identity != sequencer.identity:
            raise SharedLogLost(
                f"{directory} belongs to another shared log than the one that is there now: correct"
                " cluster.bootstrap_servers or cluster.topic, or begin a log from it with `ember cluster init` and"
                " another cluster.topic"
            )
    log = directory / "log"
    own = read_identity(log)
    if own is None:
        log.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_identity(log, LogIdentity(log_id))
    elif own.log_id != log_id:
        raise SharedLogLost(
            f"{directory} has a log that is not of this cluster: name an empty directory in store.directory, or begin"
            " a shared log from it with `ember cluster init` and another cluster.topic"
        )
    return rules


def _log_id(sequencer: Sequencer, first: int) -> str:
    """The id in the first block of the shared log."""
    if sequencer.end() <= first:
        raise SharedLogLost("the shared log is empty: begin it with `ember cluster init`, once, on one machine")
    rules = Rules()
    until_s = monotonic() + FIRST_BLOCK_S
    while monotonic() < until_s:
        for position, data in sequencer.read(first, 1.0):
            block = decode(position, data)
            rules.take(position, block)
            assert block.kind is Kind.GENESIS, "nothing else is taken first"
            return rules.log_id
    raise SequencerError("the shared log does not give its first block: see what slows Kafka down")
