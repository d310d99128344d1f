"""No orphans: a process that ends when its parent does, however that ended."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel send SIGKILL when `parent` dies (Linux; elsewhere nothing is done).

    The parent may have died before the request: then this process was handed to another parent, and ends
    at once.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
