"""`python -m dmad_sweep`."""

import sys

from dmad_sweep.app import main

if __name__ == "__main__":
    sys.exit(main())
