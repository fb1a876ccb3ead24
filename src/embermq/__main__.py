"""`python -m embermq` is `ember`."""

from embermq.cli import main

main()
