"""The OpenAPI document, made from the operations and their models."""

from collections.abc import Iterable
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from embermq import __version__
from embermq.http.fields import NDJSON, Nothing, Problem
from embermq.http.operation import PUBLIC, Operation

TAGS: Final = {
    "server": "The server itself: whether it answers, its numbers and settings, and this document.",
    "clients": "Connected clients.",
    "sessions": "Sessions, and what they are owed.",
    "subscriptions": "Subscriptions and share groups.",
    "access": "Users and their rights.",
    "retained": "Retained messages, now and as of an instant; set and clear them.",
    "tree": "The topic tree of retained messages, level by level.",
    "messages": "Messages: those of the log and its archive, and those that are published now.",
    "log": "The log itself: offsets, segments, blocks and checkpoints, for programs that read all of it.",
    "sql": "Queries over the whole history.",
    "pipeline": "The tables that the pipeline fills.",
}
"""What operations are about; each has one of these."""
TAG_OF: Final = {"share-groups": "subscriptions", "topic": "messages", "users": "access"}
"""By the part of a path behind /api/v1/, where that is not the tag itself; what has no tag is about the server."""
REF: Final = "#/components/schemas/{model}"
DESCRIPTION: Final = (
    "The HTTP interface of an EmberMQ server. HEAD is answered wherever GET is, and large answers are compressed for"
    " clients that accept gzip."
)
DESCRIPTIONS: Final = {
    400: "a parameter or the body is not as expected",
    401: "nobody is logged in",
    403: "another role is needed, or a page of another origin asks",
    404: "there is no such thing",
    408: "the body did not come in time",
    409: "this server keeps no log",
    410: "the log was trimmed, and does not reach back so far",
    411: "the body has no Content-Length",
    413: "the body is too large",
    415: "the body is not JSON, or is encoded",
    421: "the host name is not one of this server",
    422: "the parameters are well-formed, and nothing can be known of what they ask for",
    429: "too many failed logins",
    500: "an error of the server",
    503: "the server cannot answer now",
}


def document(operations: Iterable[Operation[Any, Any]]) -> dict[str, Any]:
    """The document for a list of operations."""
    known = list(operations)
    models = {model for each in known for model in (each.answer, each.lines) if model is not None} | {Problem}
    bodies = {each.body for each in known if each.body is not Nothing}
    names, definitions = models_json_schema(
        [*((model, "serialization") for model in models), *((model, "validation") for model in bodies)],
        ref_template=REF,
    )
    paths: dict[str, dict[str, Any]] = {}
    for each in known:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, names)
    return {
        "openapi": "3.1.0",
        "info": {"title": "EmberMQ", "version": __version__, "description": DESCRIPTION},
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": {name: _without_empty_defaults(each) for name, each in definitions.get("$defs", {}).items()},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "user": {"type": "http", "scheme": "basic"},
            },
        },
    }


def _operation(operation: Operation[Any, Any], names: Any) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if operation.answer is not None:
        content["application/json"] = {"schema": names[operation.answer, "serialization"]}
    if operation.lines is not None:
        content[NDJSON] = {"schema": {"type": "string", "description": "A JSON object a line."}}
    if operation.media:
        kind = "object" if operation.media == "application/json" else "string"
        content[operation.media] = {"schema": {"type": kind}}
    described: dict[str, Any] = {
        "tags": [_tag(operation.path)],
        "summary": operation.summary,
        "operationId": f"{operation.method} {operation.path}".lower()
        .replace("/api/v1", "")
        .replace("/", "-")
        .replace(" ", ""),
        "responses": {"200": {"description": "the answer", "content": content}} | _refusals(operation, names),
    }
    parameters = _parameters(operation)
    if parameters:
        described["parameters"] = parameters
    if operation.body is not Nothing:
        schema = names[operation.body, "validation"]
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if operation.role != PUBLIC:
        described["security"] = [{"token": []}, {"user": []}]
    return described


def _tag(path: str) -> str:
    part = path.removeprefix("/api/v1/").partition("/")[0]
    tag = TAG_OF.get(part, part)
    return tag if tag in TAGS else "server"


def _refusals(operation: Operation[Any, Any], names: Any) -> dict[str, Any]:
    statuses = {400, 403, 421, 500, 503, *operation.statuses}
    if operation.role != PUBLIC:
        statuses |= {401, 429}
    if operation.body is not Nothing:
        statuses |= {408, 411, 413, 415}
    schema = names[Problem, "serialization"]
    return {
        str(status): {"description": DESCRIPTIONS[status], "content": {"application/json": {"schema": schema}}}
        for status in sorted(statuses)
    }


def _parameters(operation: Operation[Any, Any]) -> list[dict[str, Any]]:
    schema = operation.query.model_json_schema(ref_template=REF)
    required = schema.get("required", [])
    parameters: list[dict[str, Any]] = []
    for name, field in schema.get("properties", {}).items():
        described = _without_null(field)
        parameters.append(
            {
                "name": name,
                "in": "query",
                "required": name in required,
                "description": described.pop("description"),
                "example": described.pop("examples")[0],
                "schema": described,
            }
        )
    return parameters


def _without_empty_defaults(model: dict[str, Any]) -> dict[str, Any]:
    """An empty text stands for a field that is not given, which the field's own schema may not allow as a value."""
    fields = model.get("properties", {})
    for field in fields.values():
        if field.get("default") == "" and field.get("minLength", 0) > 0:
            del field["default"]
    return model


def _without_null(field: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is not given is left out; a query has no null."""
    kept = {key: value for key, value in field.items() if key not in ("anyOf", "title")}
    if kept.get("default", "") is None:
        del kept["default"]
    for option in field.get("anyOf", []):
        if option.get("type") != "null":
            kept = option | kept
    return kept
