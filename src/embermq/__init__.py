"""EmberMQ: an MQTT server whose retained messages and history are durable, complete and queryable."""

from typing import TYPE_CHECKING

from embermq import compiled

if TYPE_CHECKING:
    from embermq.embed import Broker
    from embermq.sql.open_log import open_log

__version__ = "0.2.0"
__all__ = ["Broker", "__version__", "open_log"]

compiled.choose()  # before any import of a module that has a compiled form


def __getattr__(name: str) -> object:
    """`Broker` and `open_log` on first use: a program that only reads a log need not load a server."""
    if name == "Broker":
        from embermq.embed import Broker

        return Broker
    if name == "open_log":
        try:
            from embermq.sql.open_log import open_log
        except ModuleNotFoundError as error:
            from embermq.extras import missing_extra

            raise ImportError(missing_extra(error) or str(error), name=error.name) from error
        return open_log
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
