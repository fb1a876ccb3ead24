"""Users and rules: the files of users and rights, changed while the server runs.

Owns: who may change them, the record of each change in the log, and that it is in force when it is answered.
"""

import hashlib
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field

from embermq.access.access_files import AccessFiles
from embermq.errors import ConfigError
from embermq.http.fields import Model, Nothing, Page, json_text
from embermq.http.operation import OPERATOR, Answer, Call, Operation
from embermq.http.refusal import HttpRefusal
from embermq.http.service import Pending

NO_ACCESS_CHANGES: Final = (
    "who changes users and rights can take any right: the access list must grant 'see all' and 'read,write,retain #' to"
    " the user"
)
NO_FILES: Final = "this server has neither access.password_file nor access.acl_file"

T = TypeVar("T")

LISTENER: Final = "The listener whose own users or rights are meant; empty for those of the server."
Listener = Annotated[str, Field(description=LISTENER, examples=[""], max_length=64)]
UserName = Annotated[str, Field(min_length=1, max_length=1_000, description="User name.", examples=["ann"])]
Section = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1_100,
        description="A section of the access list: all, anonymous, user NAME or group NAME.",
        examples=["user ann"],
    ),
]
RuleText = Annotated[
    str, Field(min_length=1, max_length=70_000, description="A rule, as in the access list.", examples=["read home/#"])
]


class FilesQuery(Model):
    listener: Listener = ""


class User(Model):
    """A user of the password file. `rules` are those of the user alone; `has_scram`: it can log in with SCRAM too."""

    user: str
    has_scram: bool
    rules: int
    groups: list[str]


class SetUser(Model):
    user: UserName
    password: Annotated[str, Field(min_length=1, max_length=65_535, description="The password.", examples=["wonder"])]
    scram: Annotated[bool, Field(description="Whether the user can log in with SCRAM-SHA-256 too.")] = True
    listener: Listener = ""


class DeleteUser(Model):
    user: UserName
    listener: Listener = ""


class UserChanged(Model):
    """`was_known`: there was the user before."""

    was_known: bool


class OneRule(Model):
    section: str
    rule: str


class Rules(Model):
    """`text` is the whole list with its comments."""

    rules: list[OneRule]
    text: str


class NewRules(Model):
    text: Annotated[
        str, Field(max_length=16_000_000, description="The whole access list.", examples=["all\nread a/#\n"])
    ]
    listener: Listener = ""


class AddRule(Model):
    section: Section
    rule: RuleText
    listener: Listener = ""


class RemoveRule(Model):
    """Without a rule, the whole section."""

    section: Section
    rule: RuleText | None = None
    listener: Listener = ""


class RulesChanged(Model):
    """How many rules are new or gone; 0 if the list was already as asked."""

    changed: int


def _files(call: Call[Any, Any]) -> AccessFiles:
    calls = call.service.calls
    files = None if calls is None else calls.access_files
    if files is None:
        raise HttpRefusal(422, NO_FILES)
    return files


async def _read(call: Call[Any, Any], read: Callable[[AccessFiles], T]) -> T:
    files = _files(call)
    try:
        return await call.service.on_thread(lambda: read(files))
    except ConfigError as error:
        raise HttpRefusal(422, str(error)) from None


async def _change(call: Call[Any, Any], what: dict[str, Any], change: Callable[[AccessFiles], T]) -> T:
    """Record a change durably, make it, and put it into force for the clients that are connected."""
    if not call.view.may_change_access:
        raise HttpRefusal(403, NO_ACCESS_CHANGES)
    files = _files(call)
    calls = call.service.calls
    assert calls is not None
    what = {name: value for name, value in what.items() if value}
    verb, target = what["change"], f"{what.get('user') or what.get('section', '')} {what.get('rule', '')}".strip()
    async with call.service.access_changes:
        await _record(call, what)
        try:
            done = await call.service.on_thread(lambda: change(files))
        except ConfigError as error:
            await _record(call, what | {"failed": str(error)})
            call.audit(verb, target, f"failed: {error}")
            raise HttpRefusal(422, str(error)) from None
        try:
            use = await call.service.on_thread(calls.read_access)
            use()
        except ConfigError as error:
            call.audit(verb, target, f"written, not in force: {error}")
            raise HttpRefusal(422, f"the file is changed, and the old users and rights stay in use: {error}") from None
        call.audit(verb, target, "done")
        return done


async def _record(call: Call[Any, Any], what: dict[str, Any]) -> None:
    actor = call.actor
    pending = Pending()
    record = {"by": actor.name, "from": actor.address, **what}
    call.service.record_change(json_text(record).encode(), pending, actor.login_name)
    await pending.durable(call.service)


async def list_users(call: Call[FilesQuery, Nothing]) -> Answer:
    found = await _read(call, lambda files: files.users(call.query.listener))
    return Page[User](
        items=[
            User(user=each.user_name, has_scram=each.has_scram, rules=each.rules, groups=each.groups) for each in found
        ]
    )


async def set_user(call: Call[Nothing, SetUser]) -> Answer:
    body = call.body
    was_known = await _change(
        call,
        {"change": "set user", "user": body.user, "listener": body.listener},
        lambda files: files.set_user(body.user, body.password.encode(), body.listener, with_scram=body.scram),
    )
    return UserChanged(was_known=was_known)


async def delete_user(call: Call[Nothing, DeleteUser]) -> Answer:
    body = call.body
    await _change(
        call,
        {"change": "delete user", "user": body.user, "listener": body.listener},
        lambda files: files.delete_user(body.user, body.listener),
    )
    return UserChanged(was_known=True)


async def list_rules(call: Call[FilesQuery, Nothing]) -> Answer:
    listener = call.query.listener
    rules, text = await _read(call, lambda files: (files.rules(listener), files.list_text(listener)))
    return Rules(rules=[OneRule(section=each.section, rule=each.rule) for each in rules], text=text)


async def replace_rules(call: Call[Nothing, NewRules]) -> Answer:
    body = call.body
    digest = hashlib.sha256(body.text.encode("utf-8", "replace")).hexdigest()
    changed = await _change(
        call,
        {"change": "replace rules", "listener": body.listener, "sha256": digest},
        lambda files: files.replace_rules(body.text, body.listener),
    )
    return RulesChanged(changed=changed)


async def add_rule(call: Call[Nothing, AddRule]) -> Answer:
    body = call.body
    is_new = await _change(
        call,
        {"change": "add rule", "section": body.section, "rule": body.rule, "listener": body.listener},
        lambda files: files.add_rule(body.section, body.rule, body.listener),
    )
    return RulesChanged(changed=int(is_new))


async def remove_rule(call: Call[Nothing, RemoveRule]) -> Answer:
    body = call.body
    removed = await _change(
        call,
        {"change": "remove rule", "section": body.section, "rule": body.rule, "listener": body.listener},
        lambda files: files.remove_rule(body.section, body.rule, body.listener),
    )
    return RulesChanged(changed=removed)


def _operation(path: str, summary: str, handle: Any, answer: Any, body: Any = Nothing) -> Operation[Any, Any]:
    """With a body it is a change."""
    is_change = body is not Nothing
    return Operation(
        method="POST" if is_change else "GET",
        path=path,
        role=OPERATOR,
        summary=summary,
        handle=handle,
        query=Nothing if is_change else FilesQuery,
        body=body,
        answer=answer,
        statuses=(422,),
    )


OPERATIONS: Final = (
    _operation("/api/v1/users", "The users of the password file.", list_users, Page[User]),
    _operation(
        "/api/v1/users/set",
        "Add a user or set its password. Its connected clients are disconnected.",
        set_user,
        UserChanged,
        SetUser,
    ),
    _operation(
        "/api/v1/users/delete",
        "Remove a user; its clients are disconnected, its rules stay.",
        delete_user,
        UserChanged,
        DeleteUser,
    ),
    _operation("/api/v1/access/rules", "The rules of the access list, and its text.", list_rules, Rules),
    _operation(
        "/api/v1/access/rules/replace",
        "Put another access list in the place of the one in force.",
        replace_rules,
        RulesChanged,
        NewRules,
    ),
    _operation(
        "/api/v1/access/rules/add",
        "Add a rule to a section of the access list.",
        add_rule,
        RulesChanged,
        AddRule,
    ),
    _operation(
        "/api/v1/access/rules/remove",
        "Remove a rule of a section, or without a rule the whole section.",
        remove_rule,
        RulesChanged,
        RemoveRule,
    ),
)
