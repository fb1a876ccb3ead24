"""`ember cluster`: beginning the log that several servers share, seeing its nodes, and putting one out."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from embermq.commands.errors import errors_as_sentences
from embermq.commands.output import Json, counted, json_line, print_table
from embermq.commands.server_access.target import Config, Data
from embermq.errors import ConfigError

if TYPE_CHECKING:
    from embermq.cluster.sequencer import Sequencer
    from embermq.settings import Settings

app = typer.Typer(help="Several servers that share one log in Kafka.", no_args_is_help=True)


@app.command()
def init(data: Data = None, config: Config = None) -> None:
    """Begin a shared log, once, from the data directory of one server.

    The server must not run. The directory may be empty. The topic is made, unless it is there and empty.
    """
    import secrets

    from embermq.cluster.kafka import create_topic
    from embermq.cluster.operate import begin
    from embermq.engines import journal_settings, kafka_options

    with errors_as_sentences():
        settings = _cluster_settings(data, config)
        create_topic(kafka_options(settings))
        with _opened(settings) as shared:
            directory = settings.store.directory
            journal = journal_settings(settings.store)
            begun = begin(directory, shared, settings.cluster.node, secrets.randbits(63) | 1, journal)
    print(
        f"topic {settings.cluster.topic} has log {begun.log_id} with {counted(begun.records, 'record')} of {directory}"
    )
    if begun.is_complete:
        print("now start the servers: this one with this directory, each other one with an empty directory")
    else:
        print(
            "its beginning was trimmed: copy this directory to the other machines, then start the servers, each with"
            " its copy"
        )


@app.command()
def status(json: Json = False, data: Data = None, config: Config = None) -> None:
    """Show the nodes of the cluster, and which of them is active. It is asked on the machine of a node."""
    from embermq.cluster.operate import status

    with errors_as_sentences():
        settings = _cluster_settings(data, config)
        with _opened(settings) as shared:
            rules, nodes = status(settings.store.directory, shared)
        if json:
            shown = [asdict(node) for node in nodes]
            print(json_line({"log_id": rules.log_id, "epoch": rules.epoch, "nodes": shown}))
            return
        rows = [
            [
                str(each.node),
                each.state,
                each.reachable_at or "-",
                "-" if each.next_offset < 0 else str(each.next_offset),
                "-" if each.lag < 0 else str(each.lag),
            ]
            for each in nodes
        ]
        print_table(["node", "state", "reachable at", "next offset", "lag"], rows)


@app.command()
def expel(
    node: Annotated[int, typer.Argument(help="The number of the node.", min=1, max=65_535)],
    data: Data = None,
    config: Config = None,
) -> None:
    """Have a node stop. Started again, it joins as a standby."""
    from embermq.cluster.operate import expel

    with errors_as_sentences():
        settings = _cluster_settings(data, config)
        with _opened(settings) as shared:
            expel(settings.store.directory, shared, node)
        print(f"node {node} is told to stop, and nothing that it writes from now on counts")


def _cluster_settings(data: Data, config: Config) -> "Settings":
    from embermq.config import load_unchecked

    settings = load_unchecked(config, {"store": {} if data is None else {"directory": data}})
    if not settings.cluster.bootstrap_servers:
        raise ConfigError("cluster.bootstrap_servers is empty: name Kafka's brokers in the settings file")
    return settings


@contextmanager
def _opened(settings: "Settings") -> "Iterator[Sequencer]":
    from embermq.cluster.kafka import KafkaSequencer
    from embermq.engines import kafka_options

    with closing(KafkaSequencer(kafka_options(settings))) as sequencer:
        yield sequencer
