"""No orphans: what a process asks the kernel for, so that a family ends together.

On Linux; elsewhere nothing is asked for.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this signal when `parent` dies.

    The parent may have died before the request: then this process was handed to another parent, and ends
    at once.
    """
    _prctl(PR_SET_PDEATHSIG, by)
    if sys.platform == "linux" and os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies, in whatever session they are."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value)
