"""What a migration tells the operator: what was moved, and each line of Mosquitto's that was not, with its place."""

from typing import Final, final

from embermq.mosquitto.conf import Option


@final
class Report:
    """`moved`: what was made of what. `unmoved`: what has no counterpart. `different`: what was moved and behaves
    differently. `unneeded`: what has no counterpart because nothing is needed.
    """

    def __init__(self) -> None:
        self.moved: Final[list[str]] = []
        self.unmoved: Final[list[str]] = []
        self.different: Final[list[str]] = []
        self.unneeded: Final[list[str]] = []

    def not_moved(self, option: Option, why: str) -> None:
        self.unmoved.append(f"{option.place()}: {option.shown()}: {why}")

    def differs(self, option: Option, how: str) -> None:
        self.different.append(f"{option.place()}: {option.shown()}: {how}")

    def not_needed(self, option: Option) -> None:
        self.unneeded.append(f"{option.place()}: {option.shown()}")
