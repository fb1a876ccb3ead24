"""`ember config`: the settings file."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Write and check the settings file.", no_args_is_help=True)


@app.command()
def sample() -> None:
    """Print a settings file that explains every setting, with the defaults."""
    from embermq.settings import sample as text

    print(text(), end="")


@app.command()
def check(file: Annotated[Path, typer.Argument(help="The settings file.")]) -> None:
    """Check a settings file, the environment, and the files that they name, without starting anything."""
    from embermq.config import load
    from embermq.embed import Broker
    from embermq.errors import ConfigError
    from embermq.lake.errors import LakeError

    settings = load(file)
    Broker.from_settings(settings).check()
    for bridge in settings.bridges.plans():
        bridge.check_files()
    try:
        settings.pipeline.check_payloads()
    except LakeError as error:
        raise ConfigError(f"{file}: {error}") from None
    print(f"{file}: all settings are valid")
