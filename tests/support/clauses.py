"""Which clause of which edition a test proves.

Owns: the marks `v311`, `v5` and `sn2`, usable as decorators and in `pytest.param(..., marks=...)`.
Never: the clauses themselves; they are listed in `clause_lists/`, one file an edition.

The same id is another rule in another edition (MQTT-3.3.1-9, for one), so the edition is part of the mark.
"""

import pytest


def v311(*clause_ids: str) -> pytest.MarkDecorator:
    """The test proves these clauses of MQTT 3.1.1."""
    return pytest.mark.clause("v311", *clause_ids)


def v5(*clause_ids: str) -> pytest.MarkDecorator:
    """The test proves these clauses of MQTT 5.0."""
    return pytest.mark.clause("v5", *clause_ids)


def of_level(level: int, *clause_ids: str) -> pytest.MarkDecorator:
    """The test proves these clauses of the edition with this protocol level."""
    return v5(*clause_ids) if level == 5 else v311(*clause_ids)


def sn2(*clause_ids: str) -> pytest.MarkDecorator:
    """The test proves these clauses of MQTT-SN 2.0."""
    return pytest.mark.clause("sn2", *clause_ids)
