"""What the measured process reports as it goes: one JSON line for each stage that it enters.

A process that is killed writes no result; then the last of these lines is all that is known of it.
"""

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from dmad_sweep.errors import RecordError
from dmad_sweep.records.codec import from_json, to_json
from dmad_sweep.records.result import Peak


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Entering `stage` of `cycle` (0 is load) of `cycles` in all, at Unix time `at`."""

    at: float
    stage: str
    cycle: int
    cycles: int
    peak: Peak = field(default_factory=Peak)
    """The highest so far, the stage that begins left out."""


class ProgressWriter:
    """Appends lines with one write each, so that a reader or a crash sees whole lines or none."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def report(self, progress: Progress) -> None:
        os.write(self._descriptor, to_json(progress).encode() + b"\n")


class ProgressReader:
    """Follows a progress file that may not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.last: Progress | None = None

    def poll(self) -> Progress | None:
        """The newest report, or None before the first."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                text = stream.read()
        except FileNotFoundError:
            return None
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        if lines := whole.splitlines():
            with contextlib.suppress(RecordError):  # a damaged line costs one report, not the trial
                self.last = from_json(Progress, lines[-1], origin=str(self._path))
        return self.last
