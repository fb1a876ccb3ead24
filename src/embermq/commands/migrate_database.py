"""`ember migrate mosquitto.db`: retained messages and sessions into a new data directory.

Owns: the directory that is made, and in which order things are moved into it. It gets its name when all is there.
Never: the file's layout, or a record (`embermq.mosquitto`).
"""

import shutil
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

import typer

from embermq.commands.errors import errors_as_sentences, print_error
from embermq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from embermq.mosquitto.database import Database, StoredClient
    from embermq.mosquitto.moving import MovedSessions
    from embermq.protocol.packets import Publish
    from embermq.settings import Settings
    from embermq.store.interface import Store

GROUP_BYTES: Final = 8 * 1024 * 1024
GROUP_SESSIONS: Final = 1_000
"""How much is made durable at once."""
FAILING_CHECK_S: Final = 1.0


def migrate_database(file: Path, data: Path | None, config: Path | None) -> None:
    """Move the retained messages and sessions of a mosquitto.db into a data directory that does not exist yet."""
    from embermq.config import load_unchecked
    from embermq.mosquitto.database import Database

    settings = load_unchecked(config, {"store": {} if data is None else {"directory": data, "memory": False}})
    if settings.store.memory:
        raise ConfigError("store.memory is true: there is no data directory to move into, name one with --data")
    directory = settings.store.directory
    if (directory / "log").exists():
        raise ConfigError(f"{directory} has data already: name a directory that does not exist yet with --data")
    database = Database(file)
    if not database.is_complete:
        print_error(f"{file} was written while Mosquitto ran: what came later is not in it; stop Mosquitto first")
    unfinished = directory.with_name(f"{directory.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    with errors_as_sentences():
        settings = settings.model_copy(
            update={"store": settings.store.model_copy(update={"directory": unfinished, "archive": ""})}
        )
        try:
            is_all = _move(settings, database)
            if directory.exists():
                directory.rmdir()
            unfinished.rename(directory)
        except OSError as error:
            raise ConfigError(f"cannot write {directory}: {error.strerror or error}") from None
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    if not is_all:
        raise typer.Exit(1)


def _move(settings: "Settings", database: "Database") -> bool:
    """Retained messages first: with sessions there, they would be put into queues. Returns whether all was moved."""
    from embermq.commands.output import counted
    from embermq.engines import open_stopped_store
    from embermq.mosquitto.moving import MovedSessions, retained_messages, unreleased_messages

    now_us = time.time_ns() // 1000
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    retained, refused = _publish_all(settings, retained_messages(database, now_us // 1_000_000))
    store = open_stopped_store(settings.store, calls.put)
    try:
        store.begin_turn(now_us)
        sessions = MovedSessions(
            store, database, lambda client: user_of(settings, client), settings.limits.session_expiry_max_s, now_us
        )
        _move_sessions(sessions, store, calls)
    finally:
        store.close()
    unreleased = unreleased_messages(database, sessions, now_us // 1_000_000)
    published, refused_too = _publish_all(settings, unreleased)
    moved = [counted(retained, "retained message"), counted(len(sessions.moved), "session")]
    moved += [counted(sessions.subscriptions, "subscription"), counted(sessions.queued + published, "queued message")]
    print(f"{database.file}, format {database.format}: {', '.join(moved)}")
    not_moved = sessions.not_moved
    not_moved["messages that are refused"] += refused + refused_too
    for reason, count in not_moved.items():
        if count:
            print(f"not moved, {reason}: {count}")
    return not +not_moved


def _move_sessions(sessions: "MovedSessions", store: "Store", calls: "SimpleQueue[Callable[[], None]]") -> None:
    size_bytes = count = 0
    for session_bytes in sessions.move():
        size_bytes += session_bytes
        count += 1
        if size_bytes >= GROUP_BYTES or count >= GROUP_SESSIONS:
            _commit(store, calls)
            size_bytes = count = 0
    _commit(store, calls)


def _commit(store: "Store", calls: "SimpleQueue[Callable[[], None]]") -> None:
    """Wait until all records are durable. The committer's thread answers through the queue of calls."""
    from embermq.store.interface import StoreError

    answers: list[StoreError | None] = []
    if store.commit(answers.append):
        return
    while not answers:
        try:
            calls.get(timeout=FAILING_CHECK_S)()
        except Empty:
            if store.failing():
                raise StoreError(f"nothing can be made durable: {store.failing()}") from None
    if answers[0] is not None:
        raise answers[0]


def _publish_all(settings: "Settings", messages: "Iterable[Publish]") -> tuple[int, int]:
    """Publish messages as an operator does; returns how many were taken and how many refused."""
    from embermq.commands.output import printable
    from embermq.commands.server_access.stopped import StoppedServer

    names: list[str] = []

    def noted() -> "Iterable[Publish]":
        for message in messages:
            names.append(message.topic_name)
            yield message

    refused = 0
    with StoppedServer(settings) as server:
        for number, refusal in enumerate(server.retain(noted())):
            if refusal:
                refused += 1
                print_error(f"refused {printable(names[number])}: {refusal}")
        return len(names) - refused, refused


def user_of(settings: "Settings", client: "StoredClient") -> str | None:
    """By what name the server will know the user of a session; None if there are users and the file does not say."""
    listener = next((each for each in settings.listeners.each if each.port == client.port and client.port), None)
    access = settings.access
    if listener is not None:
        has_users, prefix = settings.has_users_at(listener), ""
        if listener.has_own_users():
            prefix = f"{listener.shown_name()}:"
    else:
        has_users, prefix = access.has_users() or access.certificate_as_user, ""
    if not has_users:
        return prefix  # a name is only a claim there
    return None if client.user_name is None else prefix + client.user_name
