"""EmberMQ: an MQTT server whose retained messages and history are durable, complete and queryable."""

from typing import TYPE_CHECKING

from embermq import compiled

if TYPE_CHECKING:
    from embermq.embed import Broker

__version__ = "0.1.0"
__all__ = ["Broker", "__version__"]

compiled.choose()  # before any import of a module that has a compiled form


def __getattr__(name: str) -> object:
    """`embermq.Broker` on first use: a program that only reads a log need not load a server."""
    if name == "Broker":
        from embermq.embed import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
