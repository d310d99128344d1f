"""What a child printed: bounded on disk however much that is, and read from its end."""

import os
from pathlib import Path

LIMIT_BYTES = 64 * 2**20
"""A log that has grown beyond loses its middle."""

HEAD_BYTES = 2**20
KEPT_TAIL_BYTES = 2**18

TAIL_BYTES = 16_000
"""Room for a crash's stack and the list of extension modules that follows it."""


class ChildLog:
    def __init__(self, path: Path) -> None:
        self._path = path

    def bound(self) -> None:
        """Cut the middle out of a log past its limit; its writer appends and need not know.

        What it writes between the reading and the cut is lost with the middle.
        """
        try:
            if self._path.stat().st_size <= LIMIT_BYTES:
                return
            tail = self._end(KEPT_TAIL_BYTES)
            os.truncate(self._path, HEAD_BYTES)
            with self._path.open("ab") as log:
                log.write(b"\n[... the middle of a log that grew beyond 64 MiB ...]\n" + tail)
        except OSError:
            pass  # a log that cannot be bounded is no reason to end a trial

    def tail(self) -> str | None:
        """The last lines; None where there is no log."""
        try:
            return self._end(TAIL_BYTES).decode(errors="replace")
        except OSError:
            return None

    def _end(self, size: int) -> bytes:
        with self._path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - size))
            return log.read(size)
