"""One process per combination: forked from a preloaded server, or a fresh interpreter."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol

import dmad_sweep
from dmad_sweep.errors import DmadSweepError
from dmad_sweep.records.files import TrialFolder


class IsolationError(DmadSweepError):
    """Child processes cannot be started."""


class Child(Protocol):
    """A running child, leader of its own session."""

    pid: int

    def wait(self, timeout_s: float) -> int | None:
        """The return code, negative for a signal, or None when it still runs after `timeout_s`."""


class Isolation(Protocol):
    """A way of starting children."""

    def ready(self) -> None:
        """Wait until children can be started at once. Raises IsolationError."""

    def start(self, folder: TrialFolder, task: str) -> Child: ...

    def close(self) -> None: ...


def create_isolation(name: str, server_log: Path) -> Isolation:
    """`fork` or `spawn`; the server of `fork` starts to load at once, in the background."""
    return ForkIsolation(server_log) if name == "fork" else SpawnIsolation()


def kill(child: Child) -> None:
    """SIGKILL to the child and to the group that it leads."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)


def terminate(child: Child) -> None:
    """SIGTERM to the group that the child leads; a stopped process is woken to take it."""
    for number in (signal.SIGTERM, signal.SIGCONT):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)


class SpawnIsolation:
    """A fresh interpreter for each task."""

    def ready(self) -> None:
        pass  # each child loads for itself

    def start(self, folder: TrialFolder, task: str) -> Child:
        with folder.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dmad_sweep.child", str(folder.path), task, str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=_child_environment(),
            )
        return _SpawnedChild(process)

    def close(self) -> None:
        pass


class _SpawnedChild:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    def wait(self, timeout_s: float) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None


class ForkIsolation:
    """Children of one server that has imported torch and diffusers and never touched CUDA.

    Only one thread may use an instance. A server that died is started again for the next task.
    """

    def __init__(self, server_log: Path) -> None:
        self._log = server_log
        self._process: subprocess.Popen[bytes] | None = None
        self._ended: dict[int, int] = {}
        self._messages: deque[dict[str, Any]] = deque()
        self._partial = b""
        self._ready = False
        self._launch()

    def ready(self) -> None:
        if self._process is None:
            self._launch()
        while not self._ready:
            message = self._next_message(None)
            if message is None:
                raise self._server_lost()
            self._ready = "ready" in message

    def start(self, folder: TrialFolder, task: str) -> Child:
        self.ready()
        process = self._process
        assert process is not None
        request = json.dumps({"folder": str(folder.path), "task": task}).encode() + b"\n"
        try:
            _pipe(process.stdin).write(request)
            _pipe(process.stdin).flush()
        except OSError as error:
            raise self._server_lost() from error
        while True:
            message = self._next_message(None)
            if message is None:
                raise self._server_lost()
            if "started" in message:
                return _ForkedChild(self, message["started"])

    def close(self) -> None:
        """End the server, and with it any child that is left."""
        if self._process is not None:
            _pipe(self._process.stdin).close()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            _pipe(self._process.stdout).close()
            self._process = None

    def ended(self, pid: int, timeout_s: float) -> int | None:
        """The return code of a child, waiting at most `timeout_s` for it."""
        deadline = time.monotonic() + timeout_s
        while pid not in self._ended:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if self._next_message(left) is None and self._process is None:
                return -signal.SIGKILL  # the server is gone, and its children died with it
        return self._ended.pop(pid)

    def _launch(self) -> None:
        self._ready = False
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dmad_sweep.child.server", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                # Otherwise importing diffusers asks CUDA for devices, which spoils CUDA in every fork.
                env=_child_environment() | {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
            )

    def _next_message(self, timeout_s: float | None) -> dict[str, Any] | None:
        """The next reply, endings noted; None after the timeout or when the server has gone."""
        while not self._messages:
            assert self._process is not None
            descriptor = _pipe(self._process.stdout).fileno()
            if not select.select([descriptor], [], [], timeout_s)[0]:
                return None
            chunk = os.read(descriptor, 65536)
            if not chunk:
                self._process.wait()
                self._process = None
                return None
            *lines, self._partial = (self._partial + chunk).split(b"\n")
            self._messages.extend(json.loads(line) for line in lines)
        message = self._messages.popleft()
        if "ended" in message:
            self._ended[message["ended"]] = os.waitstatus_to_exitcode(message["status"])
        if "error" in message:
            raise IsolationError(
                f"torch and diffusers cannot be loaded: {message['error']} (details in {self._log}; "
                "check the installation with: python -c 'import torch, diffusers')"
            )
        return message

    def _server_lost(self) -> IsolationError:
        self._process = None
        return IsolationError(
            f"the process that forks trials ended; see {self._log}. isolation=spawn does without it"
        )


class _ForkedChild:
    def __init__(self, server: ForkIsolation, pid: int) -> None:
        self._server = server
        self.pid = pid

    def wait(self, timeout_s: float) -> int | None:
        return self._server.ended(self.pid, timeout_s)


def _child_environment() -> dict[str, str]:
    """The environment with this package importable, also when it runs from a checkout."""
    root = str(Path(dmad_sweep.__file__).resolve().parents[1])
    path = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": root + (os.pathsep + path if path else "")}


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
