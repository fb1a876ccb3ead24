"""Fuzzing of everything that reads bytes which others have made (docs/proof.md): `python -m fuzzing TARGET`."""
