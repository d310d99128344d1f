"""`python -m dmad_sweep.child.server PARENT_PID`: forks a child for each task, with torch preloaded.

Importing torch and diffusers takes 13 to 18 s, a fork some milliseconds. A fork may use CUDA only if its
parent never touched it, so this process does nothing but import and fork.

The protocol is one JSON object a line. In: {"folder": …, "task": …}. Out: {"ready": true} once, or
{"error": …}; {"started": PID} for each request, in order; {"ended": PID, "status": WAITSTATUS} for each
child. The end of the input ends the server, and its children with it.
"""

import gc
import json
import os
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dmad_sweep.child.entry import run
from dmad_sweep.child.lifeline import die_with_parent
from dmad_sweep.records.files import TrialFolder


class Server:
    def __init__(self) -> None:
        # What is printed while importing must not reach the protocol.
        self._requests = os.dup(0)
        self._replies = os.dup(1)
        os.dup2(2, 1)
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        try:
            self._preload()
        except BaseException as error:
            self._reply({"error": f"{type(error).__name__}: {error}"})
            raise
        self._reply({"ready": True})
        pending = b""
        while True:
            readable, _, _ = select.select([self._requests, self._woken], [], [])
            if self._woken in readable:
                os.read(self._woken, 4096)
                self._reap()
            if self._requests in readable:
                chunk = os.read(self._requests, 65536)
                if not chunk:
                    return
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    self._start(json.loads(line))

    @staticmethod
    def _preload() -> None:
        with _without("bitsandbytes"):
            import diffusers  # noqa: F401
            import torch

            import dmad_sweep.child.loop
            import dmad_sweep.workload.images  # noqa: F401

        if torch.cuda.is_initialized():
            raise RuntimeError("importing initialised CUDA; use isolation=spawn")
        gc.collect()
        gc.freeze()  # a collection in a child would otherwise copy every page of the modules

    def _start(self, request: dict[str, str]) -> None:
        server = os.getpid()
        with warnings.catch_warnings():
            # Python 3.12 warns of numpy's and scipy's OpenBLAS threads; OpenBLAS starts them anew.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            code = 1
            try:
                self._leave_server()
                code = run(TrialFolder(Path(request["folder"])), request["task"], parent=server)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        self._reply({"started": child})

    def _leave_server(self) -> None:
        """Close what keeps the server's pipes alive and give signals their usual meaning."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (self._requests, self._replies, self._woken, self._wake):
            os.close(descriptor)
        os.setsid()

    def _reap(self) -> None:
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if child == 0:
                return
            self._reply({"ended": child, "status": status})

    def _reply(self, message: dict[str, Any]) -> None:
        os.write(self._replies, json.dumps(message).encode() + b"\n")


@contextmanager
def _without(module: str) -> Iterator[None]:
    """As if `module` were not installed.

    diffusers imports bitsandbytes wherever it finds it, and that initialises CUDA. A child that trains with
    it imports it for itself.
    """
    sys.modules[module] = None  # type: ignore[assignment]  # how importlib marks what must not be found
    try:
        yield
    finally:
        del sys.modules[module]


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    Server().serve()
