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
def check(
    file: Annotated[
        Path | None,
        typer.Argument(
            envvar="EMBERMQ_CONFIG", show_default="the file that `ember serve` would find", help="The settings file."
        ),
    ] = None,
) -> None:
    """Check a settings file, the environment, and the files that they name, without starting anything."""
    from embermq.config import found_file, load
    from embermq.embed import Broker
    from embermq.errors import ConfigError
    from embermq.http.alerts.metric_names import unknown_metric
    from embermq.lake.errors import LakeError

    file = file or found_file()
    settings = load(file)
    place = str(file or "defaults, since no ember.toml was found")
    Broker.from_settings(settings).check()
    for alert in settings.server.alerts:
        if problem := unknown_metric(alert.rule()):
            raise ConfigError(f"{place}: server.alerts: {problem}")
    for bridge in settings.bridges.plans():
        bridge.check_files()
    try:
        settings.pipeline.check_payloads()
    except LakeError as error:
        raise ConfigError(f"{place}: {error}") from None
    print(f"{place}: all settings are valid")
