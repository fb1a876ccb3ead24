"""The OpenAPI document: every operation is in it, and schemathesis finds no answer that it does not promise."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis.checks import CHECKS

from embermq import Broker
from embermq.access.tokens import write_token
from embermq.http.catalog import OPERATIONS
from embermq.http.openapi import document
from embermq.http.operation import PUBLIC, VIEWER, Operation
from embermq.http.options import HttpOptions
from support.ember_command import wire

DOCUMENT = document(OPERATIONS)
CONFIG = schemathesis.Config.from_dict(
    {
        "checks": {
            # 410 and 422: well-formed, but nothing is known of what is asked for, such as an instant in the future.
            "positive_data_acceptance": {"expected-statuses": ["2xx", "401", "403", "404", "409", "410", "422"]}
        }
    }
)
ANSWER_S = 60
"""What an answer may take: a query in SQL starts a process of its own, which gives way to all others."""
EXAMPLES = {"operator": 6, "viewer": 1, "nobody": 1}
"""For each operation and mode; the long test asks with other ones each time."""
LONG_EXAMPLES = 100


class Target:
    """A server with something of everything, and tokens to it: for an operator, a viewer, and somebody without one."""

    def __init__(self, broker: Broker, tokens: dict[str, str]) -> None:
        self.url = f"http://127.0.0.1:{broker.http_port}"
        self.headers = {who: {"Authorization": f"Bearer {token}"} if token else {} for who, token in tokens.items()}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    directory = tmp_path_factory.mktemp("openapi")
    tokens = {role: write_token(directory / "tokens", f"tester-{role}", role) for role in ("operator", "viewer")}
    http = HttpOptions(port=0, token_file=directory / "tokens", lake=directory / "lake")
    with Broker.in_thread(data=directory / "data", http=http) as broker, wire(broker, "reader") as reader:
        away = wire(broker, "away", clean=False)
        away.subscribe("a/#")
        away.disconnect()
        reader.subscribe("a/#", "$share/group/a/b")
        for number in range(20):
            reader.publish(f"a/{number}", b"\xff\x00" if number % 2 else b"text", qos=1, retain=True)
        yield Target(broker, {**tokens, "nobody": ""})


def test_every_operation_is_described() -> None:
    described = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert described == {(operation.method, operation.path) for operation in OPERATIONS}
    names = [method["operationId"] for methods in DOCUMENT["paths"].values() for method in methods.values()]
    assert len(set(names)) == len(names)


def test_the_document_is_valid_and_so_are_its_defaults() -> None:
    assert [str(error) for error in OpenAPIV31SpecValidator(DOCUMENT).iter_errors()] == []


def test_every_operation_has_a_tag_that_is_described() -> None:
    known = {tag["name"]: tag["description"] for tag in DOCUMENT["tags"]}
    assert all(text.endswith(".") for text in known.values())
    used = [method["tags"] for methods in DOCUMENT["paths"].values() for method in methods.values()]
    assert all(len(tags) == 1 for tags in used)
    assert {tags[0] for tags in used} == set(known)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: f"{operation.method} {operation.path}")
def test_every_parameter_has_a_description_and_an_example_that_is_accepted(operation: Operation[Any, Any]) -> None:
    parameters = DOCUMENT["paths"][operation.path][operation.method.lower()].get("parameters", [])
    assert {each["name"] for each in parameters} == set(operation.query.model_fields)
    for each in parameters:
        assert each["description"].endswith(".")
    examples = {each["name"]: str(each["example"]) for each in parameters}
    operation.query.model_validate(examples)


REFUSED_UNREAD = (400, 401, 404, 405, 421)
"""How a request may be refused before anybody looks at who asks, and 401."""
LEFT_OUT = {
    "use_after_free",
    "ensure_resource_availability",
    "ignored_auth",  # every operation is asked without a login in test_tcp_login.py
    "max_response_time",
}


def cases() -> list[Any]:
    """Each operation with right requests and, if it has parameters, with wrong ones."""
    schema: Any = schemathesis.openapi.from_dict(DOCUMENT, config=CONFIG)
    found: list[Any] = []
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path in ("/api/v1/messages/tail", "/api/v1/messages/latest"):
            continue  # they do not end
        found.append(pytest.param(operation, schemathesis.GenerationMode.POSITIVE, id=f"{operation.label}-right"))
        if operation.definition.raw.get("parameters") or operation.definition.raw.get("requestBody"):
            found.append(pytest.param(operation, schemathesis.GenerationMode.NEGATIVE, id=f"{operation.label}-wrong"))
    return found


def examine(target: Target, operation: Any, mode: schemathesis.GenerationMode, who: str, how: settings) -> None:
    """Ask as somebody, and check each answer against the document: none is a 5xx or one that is not in it."""
    names = [name for name in CHECKS.get_all_names() if name not in LEFT_OUT]
    if who != "operator":  # who may not ask is refused, whatever the request
        names = [name for name in names if name not in ("positive_data_acceptance", "negative_data_rejection")]
    checks = CHECKS.get_by_names(names)

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(how)
    def run(case: Any) -> None:
        headers = target.headers[who]
        answer = case.call_and_validate(base_url=target.url, headers=headers, checks=checks, timeout=ANSWER_S)
        assert answer.status_code != 401 or who == "nobody"
        role = next(each.role for each in OPERATIONS if (each.method, each.path) == (case.method, case.operation.path))
        if who == "nobody" and role != PUBLIC:
            assert answer.status_code in REFUSED_UNREAD
        if who == "viewer" and role > VIEWER:
            assert answer.status_code in (403, *REFUSED_UNREAD)

    run()


def bounded(**options: Any) -> settings:
    return settings(
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
        **options,
    )


@pytest.mark.parametrize("who", EXAMPLES)
@pytest.mark.parametrize(("operation", "mode"), cases())
def test_schemathesis_finds_nothing(
    target: Target, operation: Any, mode: schemathesis.GenerationMode, who: str
) -> None:
    examine(target, operation, mode, who, bounded(max_examples=EXAMPLES[who], derandomize=True))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("who", EXAMPLES)
@pytest.mark.parametrize(("operation", "mode"), cases())
def test_schemathesis_finds_nothing_with_many_requests(
    target: Target, operation: Any, mode: schemathesis.GenerationMode, who: str
) -> None:
    few = operation.path == "/api/v1/sql"  # each query starts a process
    examine(target, operation, mode, who, bounded(max_examples=10 if few else LONG_EXAMPLES))
