"""Whether the kernel's out-of-memory killer struck, from its own counters."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class OomKills:
    """Processes that the kernel killed for lack of memory; None where no counter can be read."""

    group: int | None
    """In this process's control group, and with version 2 below it."""
    host: int | None
    """On the whole host since it started."""

    @classmethod
    def now(cls) -> "OomKills":
        return cls(
            group=next(filter(lambda count: count is not None, map(_count, _group_files())), None),
            host=_count(Path("/proc/vmstat")),
        )

    def explanation(self, later: "OomKills") -> str:
        """What a SIGKILL between the two readings, sent by nobody known, is likely to be."""
        if _rose(self.group, later.group):
            return "host memory ran out: the kernel's out-of-memory killer struck in its control group"
        if _rose(self.host, later.host):
            return "host memory ran out: the kernel's out-of-memory killer struck meanwhile"
        if later.group is None and later.host is None:
            return "the kernel kills processes when the host runs out of memory"
        return "not by the kernel's out-of-memory killer, whose counters stand still"


def _rose(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before


def _group_files() -> Iterator[Path]:
    """Where the counter of this process's control group can be, by version 2 and by version 1.

    In a container the path in /proc may be the host's, and the root of what is mounted its own group.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            for group in (path, "/"):
                yield CGROUPS / group.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            for group in (path, "/"):
                yield CGROUPS / "memory" / group.lstrip("/") / "memory.oom_control"


def _count(file: Path) -> int | None:
    try:
        found = re.search(r"^oom_kill (\d+)$", file.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None
