"""The pipeline as spark-submit runs it: its arguments are those of `ember pipeline run`."""

import sys

from embermq.cli import main

if __name__ == "__main__":
    sys.argv[1:] = ["pipeline", "run", "--submitted", *sys.argv[1:]]
    main()
