"""`python -m dmad_sweep.child.server PARENT_PID fork|spawn`: the process that children descend from.

One child runs at a time. With `fork` it is forked from this process, which has imported torch and diffusers:
that takes 13 to 18 s, a fork some milliseconds. A fork may use CUDA only if its parent never touched it, so
this process does nothing but import and fork. With `spawn` it is a fresh interpreter.

Whatever a child started and left running becomes this process's own, in whatever session it is, and is
killed when the child has ended.

The protocol is one JSON object a line. In: {"folder": …, "task": …} starts a child; {"signal": NUMBER} goes
to it and to all its descendants. Out: {"ready": true} once, or {"error": …}; {"started": PID} for each child;
{"ended": PID, "status": WAITSTATUS, "left_behind": COUNT} at its end. The end of the input, or of the
parent, ends the server and all that descends from it.
"""

import gc
import json
import os
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from dmad_sweep.child.entry import run
from dmad_sweep.child.lifeline import adopt_orphans, die_with_parent
from dmad_sweep.records.files import TrialFolder

PATIENCE_S = 1.0
"""For what a child left behind to end by itself, as loader workers and resource trackers do."""

KILL_S = 10.0
"""For a killed process to be gone; one in an uninterruptible sleep may take longer than anybody waits."""


class Server:
    def __init__(self, parent: int, *, forks: bool) -> None:
        self._parent, self._forks = parent, forks
        self._child: int | None = None
        # What is printed while importing must not reach the protocol.
        self._requests = os.dup(0)
        self._replies = os.dup(1)
        os.dup2(2, 1)
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def serve(self) -> None:
        try:
            if self._forks:
                self._preload()
        except BaseException as error:
            self._reply({"error": f"{type(error).__name__}: {error}"})
            raise
        signal.set_wakeup_fd(self._wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGHUP, lambda *_: None)  # the parent's death
        adopt_orphans()
        self._reply({"ready": True})
        try:
            self._answer()
        finally:
            _end_descendants(patience_s=0)

    def _answer(self) -> None:
        pending = b""
        while os.getppid() == self._parent:
            readable, _, _ = select.select([self._requests, self._woken], [], [])
            if self._woken in readable:
                os.read(self._woken, 4096)
                self._reap()
            if self._requests in readable:
                chunk = os.read(self._requests, 65536)
                if not chunk:
                    return
                *lines, pending = (pending + chunk).split(b"\n")
                for request in map(json.loads, lines):
                    if "signal" in request:
                        _signal_descendants(signal.Signals(request["signal"]))
                    else:
                        self._start(request["folder"], request["task"])

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

    def _start(self, folder: str, task: str) -> None:
        self._child = self._fork(folder, task) if self._forks else self._spawn(folder, task)
        self._reply({"started": self._child})

    def _fork(self, folder: str, task: str) -> int:
        server = os.getpid()
        with warnings.catch_warnings():
            # Python 3.12 warns of numpy's and scipy's OpenBLAS threads; OpenBLAS starts them anew.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            code = 1
            try:
                self._leave_server()
                code = run(TrialFolder(Path(folder)), task, parent=server)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        return child

    @staticmethod
    def _spawn(folder: str, task: str) -> int:
        log = TrialFolder(Path(folder)).log
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "dmad_sweep.child", folder, task, str(os.getpid())],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )

    def _leave_server(self) -> None:
        """Close what keeps the server's pipes alive and give signals their usual meaning."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        for descriptor in (self._requests, self._replies, self._woken, self._wake):
            os.close(descriptor)
        os.setsid()

    def _reap(self) -> None:
        """Let go of ended processes; after the child's end, of all that descended from it."""
        while (ended := _wait_for_any()) is not None:
            child, status = ended
            if child == self._child:
                self._child = None
                left_behind = _end_descendants(PATIENCE_S)
                self._reply({"ended": child, "status": status, "left_behind": left_behind})

    def _reply(self, message: dict[str, Any]) -> None:
        os.write(self._replies, json.dumps(message).encode() + b"\n")


def _wait_for_any() -> tuple[int, int] | None:
    """PID and wait status of a child that has ended; None when there is none."""
    with suppress(ChildProcessError):
        child, status = os.waitpid(-1, os.WNOHANG)
        return (child, status) if child else None
    return None


def _end_descendants(patience_s: float) -> int:
    """Wait so long for what descends from this process, then kill it; how many had to be killed."""
    killed: set[int] = set()
    started = time.monotonic()
    while (waited_s := time.monotonic() - started) < patience_s + KILL_S:
        while _wait_for_any() is not None:
            pass
        descendants = _descendants()
        if not descendants:
            break
        if waited_s >= patience_s:
            for process in descendants:
                with suppress(psutil.Error):
                    process.kill()
                    killed.add(process.pid)
        time.sleep(0.01)
    return len(killed)


def _signal_descendants(number: signal.Signals) -> None:
    for process in _descendants():
        with suppress(psutil.Error):
            process.send_signal(number)
            if number != signal.SIGKILL:
                process.send_signal(signal.SIGCONT)  # a stopped process takes nothing else


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


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
    parent = int(sys.argv[1])
    die_with_parent(parent, by=signal.SIGHUP)
    Server(parent, forks=sys.argv[2] == "fork").serve()
