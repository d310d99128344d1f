"""One process per combination, under a server that starts it and answers for all that descends from it."""

import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import psutil

import dmad_sweep
from dmad_sweep.errors import DmadSweepError
from dmad_sweep.records.files import TrialFolder

MARK = "DMAD_SWEEP_SERVER"
"""An environment variable by which a server's descendants are known when it can no longer tell them."""

KILL_S = 15.0
"""For a server to answer for a killed child; it waits for less itself."""


class IsolationError(DmadSweepError):
    """Child processes cannot be started."""


@dataclass(frozen=True)
class ChildEnd:
    """How a child ended."""

    code: int
    """The return code, negative for a signal."""
    left_behind: int = 0
    """Processes that it had started and that had to be killed."""


class Child(Protocol):
    """A running child, leader of its own session."""

    pid: int

    def wait(self, timeout_s: float) -> ChildEnd | None:
        """None when it still runs after `timeout_s`."""

    def terminate(self, grace_s: float) -> ChildEnd:
        """Ask it and its descendants to end (SIGTERM), and kill those that have not done so in time."""

    def kill(self) -> ChildEnd:
        """SIGKILL to it and to its descendants."""


class Isolation(Protocol):
    """A way of starting children, one at a time."""

    def ready(self) -> None:
        """Wait until children can be started at once. Raises IsolationError."""

    def start(self, folder: TrialFolder, task: str) -> Child:
        """Raises IsolationError."""

    def close(self) -> None: ...


class ChildServer:
    """Children of one server process, `fork`ed from it or `spawn`ed as fresh interpreters.

    The server starts to load at once, in the background; one that died is started again for the next child.
    Only one thread may use an instance.
    """

    def __init__(self, isolation: str, log: Path) -> None:
        self._isolation, self._log = isolation, log
        self._mark = f"{os.getpid()}-{uuid.uuid4().hex}"
        self._process: subprocess.Popen[bytes] | None = None
        self._ended: dict[int, ChildEnd] = {}
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
                raise self._lost()
            self._ready = "ready" in message

    def start(self, folder: TrialFolder, task: str) -> Child:
        self.ready()
        try:
            self._request({"folder": str(folder.path), "task": task})
        except OSError as error:
            raise self._lost() from error
        while True:
            message = self._next_message(None)
            if message is None:
                raise self._lost()
            if "started" in message:
                return _ServedChild(self, message["started"])

    def close(self) -> None:
        """End the server, and with it any child that is left."""
        if self._process is not None:
            _pipe(self._process.stdin).close()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self.abandon()
            else:
                _pipe(self._process.stdout).close()
                self._process = None

    def ended(self, pid: int, timeout_s: float) -> ChildEnd | None:
        """How a child ended, waiting at most `timeout_s` for it."""
        deadline = time.monotonic() + timeout_s
        while pid not in self._ended:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if self._next_message(left) is None and self._process is None:
                return ChildEnd(-signal.SIGKILL)  # the server is gone, and its child died with it
        return self._ended.pop(pid)

    def signal(self, number: signal.Signals) -> None:
        """To the running child and all its descendants."""
        with suppress(OSError):  # the server is gone, and its child with it
            self._request({"signal": int(number)})

    def abandon(self) -> None:
        """Kill a server that no longer answers, and all that descends from it."""
        if self._process is not None:
            self._process.kill()
            self._forget()

    def _launch(self) -> None:
        self._ready = False
        self._messages.clear()
        self._partial = b""
        environment = _child_environment() | {MARK: self._mark}
        if self._isolation == "fork":
            # Otherwise importing diffusers asks CUDA for devices, which spoils CUDA in every fork.
            environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dmad_sweep.child.server", str(os.getpid()), self._isolation],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=environment,
            )

    def _request(self, message: dict[str, Any]) -> None:
        if self._process is not None:
            stream = _pipe(self._process.stdin)
            stream.write(json.dumps(message).encode() + b"\n")
            stream.flush()

    def _next_message(self, timeout_s: float | None) -> dict[str, Any] | None:
        """The next reply, endings noted; None after the timeout or when the server has gone."""
        while not self._messages:
            if self._process is None:
                return None
            descriptor = _pipe(self._process.stdout).fileno()
            if not select.select([descriptor], [], [], timeout_s)[0]:
                return None
            chunk = os.read(descriptor, 65536)
            if not chunk:
                self._forget()
                return None
            *lines, self._partial = (self._partial + chunk).split(b"\n")
            self._messages.extend(json.loads(line) for line in lines)
        message = self._messages.popleft()
        if "ended" in message:
            code = os.waitstatus_to_exitcode(message["status"])
            self._ended[message["ended"]] = ChildEnd(code, message["left_behind"])
        if "error" in message:
            raise IsolationError(
                f"torch and diffusers cannot be loaded: {message['error']} (details in {self._log}; "
                "check the installation with: python -c 'import torch, diffusers')"
            )
        return message

    def _forget(self) -> None:
        """A server that has ended could not end what descended from it."""
        process, self._process = self._process, None
        if process is not None:
            process.wait()
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):  # what could not be written is written again by closing
                    _pipe(stream).close()
        _kill_marked(self._mark)

    def _lost(self) -> IsolationError:
        self._forget()
        return IsolationError(f"the process that starts trials ended; see {self._log}")


class _ServedChild:
    def __init__(self, server: ChildServer, pid: int) -> None:
        self._server = server
        self.pid = pid

    def wait(self, timeout_s: float) -> ChildEnd | None:
        return self._server.ended(self.pid, timeout_s)

    def terminate(self, grace_s: float) -> ChildEnd:
        self._server.signal(signal.SIGTERM)
        return self.wait(grace_s) or self.kill()

    def kill(self) -> ChildEnd:
        self._server.signal(signal.SIGKILL)
        end = self.wait(KILL_S)
        if end is None:
            self._server.abandon()
        return end or ChildEnd(-signal.SIGKILL)


def _kill_marked(mark: str) -> None:
    """SIGKILL to every process that was started with this mark."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                process.kill()


def _child_environment() -> dict[str, str]:
    """The environment with this package importable, also when it runs from a checkout."""
    root = str(Path(dmad_sweep.__file__).resolve().parents[1])
    path = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": root + (os.pathsep + path if path else "")}


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
