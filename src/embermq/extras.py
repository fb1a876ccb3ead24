"""Packages that only some users need: the extras (pyproject.toml), and the sentence for one that is not installed."""

from typing import Final

EXTRA_OF: Final = {
    "confluent_kafka": "cluster",
    "cryptography": "sn-protection",
    "delta": "spark",
    "deltalake": "sql",
    "duckdb": "sql",
    "jwt": "jwt",
    "numpy": "sql",
    "pyarrow": "sql",
    "pyspark": "spark",
}


def missing_extra(error: ModuleNotFoundError, extra: str | None = None) -> str | None:
    """The sentence for a package of an extra that is not installed, or of a given one; None for any other module."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRA_OF:
        return None
    return f"this needs {package}, which is not installed: pip install 'embermq[{extra or EXTRA_OF[package]}]'"
