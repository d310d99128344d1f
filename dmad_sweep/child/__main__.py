"""`python -m dmad_sweep.child FOLDER TASK PARENT_PID`: one task in this fresh interpreter."""

import os
import sys
from pathlib import Path

from dmad_sweep.child.entry import run
from dmad_sweep.records.files import TrialFolder

if __name__ == "__main__":
    code = run(TrialFolder(Path(sys.argv[1])), sys.argv[2], parent=int(sys.argv[3]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the outcome is on disk; tearing CUDA down adds nothing but time
