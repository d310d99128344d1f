from pathlib import Path

import pytest

from dmad_sweep.sweep import oom_killer
from dmad_sweep.sweep.oom_killer import OomKills


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            OomKills(0, 5),
            OomKills(1, 6),
            "host memory ran out: the kernel's out-of-memory killer struck in its",
        ),
        (
            OomKills(None, 5),
            OomKills(None, 6),
            "host memory ran out: the kernel's out-of-memory killer struck mean",
        ),
        (
            OomKills(2, 5),
            OomKills(2, 5),
            "not by the kernel's out-of-memory killer, whose counters stand still",
        ),
        (
            OomKills(None, None),
            OomKills(None, None),
            "the kernel kills processes when the host runs out of memory",
        ),
    ],
)
def test_the_counters_tell_who_killed(before: OomKills, after: OomKills, expected: str) -> None:
    assert before.explanation(after).startswith(expected)


@pytest.mark.parametrize("file", ["memory.events", "memory/memory.oom_control"])
def test_a_container_mounts_its_own_group_as_the_root(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = tmp_path / file
    counter.parent.mkdir(exist_ok=True)
    counter.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 7\noom_group_kill 1\n")
    monkeypatch.setattr(oom_killer, "CGROUPS", tmp_path)
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    if not any(":memory:" in line for line in lines) and "oom_control" in file:
        pytest.skip("no version 1 here")
    assert OomKills.now().group == 7
