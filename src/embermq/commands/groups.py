"""The commands of `ember --help` by what somebody wants to do.

Owns: the headings, and which command is under which.
"""

from typing import Any, Final

from typer.core import TyperGroup

HEADINGS: Final[dict[str, tuple[str, ...]]] = {
    "Start a server": ("init", "migrate", "serve", "up", "reload", "cluster"),
    "Publish and subscribe": ("pub", "sub", "retained"),
    "See what happens": ("top", "clients", "sessions", "bridges"),
    "Ask the history": ("log", "sql", "pipeline"),
    "Keep it safe": ("backup", "restore", "store", "passwd", "access", "token"),
    "Look something up": ("config", "version"),
}
_WIDTH_OF_THE_REST: Final = 6
"""The indent of a line and the gap between its two columns."""


class GroupedCommands(TyperGroup):
    """The root of all commands; its help has them under headings."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for heading, names in HEADINGS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (
                            name.ljust(width),
                            self.commands[name].get_short_help_str(formatter.width - width - _WIDTH_OF_THE_REST),
                        )
                        for name in names
                    ]
                )
