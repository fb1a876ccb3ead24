"""The promise behind docs/conformance.md: every clause that binds a server has a test, and the page says so."""

import pytest

from support import conformance
from support.conformance import Clause, Proof


def test_every_clause_that_binds_a_server_has_a_test(every_test: list[pytest.Item]) -> None:
    assert conformance.unproved_clauses(conformance.gather_proofs(every_test)) == []


def test_every_mark_names_a_clause_of_its_edition(every_test: list[pytest.Item]) -> None:
    assert conformance.unknown_clauses(conformance.gather_proofs(every_test)) == []


def test_the_page_is_what_the_marks_say_today(every_test: list[pytest.Item]) -> None:
    written = conformance.PAGE.read_text(encoding="utf-8")
    assert written == conformance.render(conformance.gather_proofs(every_test)), "run: make conformance"


@pytest.mark.parametrize(
    ("edition", "statements", "first_numbers"),
    [
        ("v311", 141, {}),
        # The standard has no MQTT-2.2.1-1.
        ("v5", 251, {"MQTT-2.2.1": 2}),
    ],
)
def test_a_list_has_every_statement_of_its_standard_once(
    edition: str, statements: int, first_numbers: dict[str, int]
) -> None:
    ids = [clause.id for clause in conformance.read_clauses(edition)]
    assert len(ids) == len(set(ids)) == statements
    # The statements of a section are numbered without gaps, so a line lost from the list shows as one.
    sections: dict[str, list[int]] = {}
    for clause_id in ids:
        section, _, number = clause_id.rpartition("-")
        sections.setdefault(section, []).append(int(number))
    for section, numbers in sections.items():
        first = first_numbers.get(section, 1)
        assert numbers == [*range(first, first + len(numbers))], section


def test_a_clause_without_a_test_is_reported() -> None:
    proofs = {
        Proof(edition, clause.id, "t.py::t")
        for edition in conformance.PROMISED
        for clause in conformance.read_clauses(edition)
    }
    assert conformance.unproved_clauses(proofs) == []
    (fault,) = conformance.unproved_clauses(proofs - {Proof("v311", "MQTT-3.3.1-5", "t.py::t")})
    assert fault.startswith("v311 MQTT-3.3.1-5: ")


def test_the_same_id_in_another_edition_proves_nothing() -> None:
    proofs = {Proof("v5", clause.id, "t.py::t") for clause in conformance.read_clauses("v311")}
    unproved = [fault for fault in conformance.unproved_clauses(proofs) if fault.startswith("v311 ")]
    assert len(unproved) == sum(clause.needs_test for clause in conformance.read_clauses("v311"))


@pytest.mark.parametrize(("edition", "clause_id"), [("v311", "MQTT-3.3.1-13"), ("v5", "MQTT-2.2.1-1")])
def test_a_mark_with_an_unknown_id_is_reported(edition: str, clause_id: str) -> None:
    proofs = {Proof(edition, clause_id, "t.py::t")}
    assert conformance.unknown_clauses(proofs) == [f"t.py::t: {edition} has no {clause_id}"]


@pytest.mark.parametrize(
    ("clause", "needed"),
    [
        (Clause("a", "server", "rule", ""), True),
        (Clause("a", "both", "rule", ""), True),
        (Clause("a", "client", "rule", ""), False),
        (Clause("a", "server", "rule", "a reason"), False),
    ],
)
def test_only_what_binds_a_server_and_can_be_tested_needs_a_test(clause: Clause, needed: bool) -> None:
    assert clause.needs_test is needed
