"""The pipeline as spark-submit runs it: its arguments are those of `ember pipeline run`."""

import sys

from embermq.cli import main
from embermq.commands.submitted.parent import leave_process_id

if __name__ == "__main__":
    leave_process_id()
    sys.argv[1:] = ["pipeline", "run", "--submitted", *sys.argv[1:]]
    main()
