"""Every way in which a child may misbehave: one row each, with how it ended, and nothing left of it."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from dmad_sweep.records.files import TrialFolder
from dmad_sweep.records.row import row_of
from dmad_sweep.records.settings import Schedule
from dmad_sweep.sweep.child_log import LIMIT_BYTES
from dmad_sweep.sweep.isolation import ChildServer
from faults.misbehaviour import DAEMON, ENDS, HANGS, Misbehaviour
from plans import make_plan
from sweep.conftest import run_in

LONG = Schedule(warmup_cycles=2, measured_cycles=1_000_000)


@pytest.fixture(scope="module")
def whole_module() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, whole_module: pytest.MonkeyPatch
) -> Iterator[tuple[Misbehaviour, ChildServer]]:
    folder = tmp_path_factory.mktemp("misbehaviour")
    misbehaviour = Misbehaviour(folder)
    for name, value in misbehaviour.environment.items():
        whole_module.setenv(name, value)
    server = ChildServer("fork", folder / "server.log")
    yield misbehaviour, server
    server.close()


@pytest.fixture
def server(shared: tuple[Misbehaviour, ChildServer]) -> ChildServer:
    return shared[1]


@pytest.fixture
def misbehaviour(shared: tuple[Misbehaviour, ChildServer]) -> Iterator[Misbehaviour]:
    yield shared[0]
    shared[0].stop()


EXPECTED: dict[str, tuple[str, int | None, str | None, str]] = {
    "exit 0": ("failed", 0, None, "ended with exit code 0 in data, cycle 2 of 3: it left no result"),
    "exit 3": ("failed", 3, None, "ended with exit code 3 in data, cycle 2 of 3: it left no result"),
    "raise": ("failed", 0, None, "ValueError: a bug"),
    "exit by exception": ("failed", 1, None, "SystemExit: 4"),
    "segfault": ("failed", None, "SIGSEGV", "ended by SIGSEGV in data, cycle 2 of 3: it left no result"),
    "abort": ("failed", None, "SIGABRT", "ended by SIGABRT in data, cycle 2 of 3: it left no result"),
    "SIGKILL": ("killed", None, "SIGKILL", "it left no result; not by the kernel's out-of-memory killer"),
    "SIGTERM": ("killed", None, "SIGTERM", "ended by SIGTERM in data, cycle 2 of 3: it left no result"),
    "garbage": ("failed", 0, None, "its result cannot be read"),
    "half a result": ("failed", 0, None, "its result cannot be read"),
    "deep result": ("failed", 0, None, "its result cannot be read"),
    "no result": ("failed", 0, None, "ended with exit code 0"),
}


@pytest.mark.parametrize("name", ENDS)
def test_an_end_without_a_result_is_told(
    name: str, misbehaviour: Misbehaviour, server: ChildServer, folder: TrialFolder
) -> None:
    misbehaviour.start(ENDS[name])
    record = run_in(server, make_plan(), folder)
    status, code, number, explanation = EXPECTED[name]
    row = row_of(record)
    assert (row.status, record.ending.exit_code, record.ending.signal) == (status, code, number)
    assert explanation in (row.explanation or "")
    assert record.ending.log_tail is not None
    assert record.ending.last_cycle is not None
    assert record.ending.last_cycle >= 2
    assert row.peak_allocated_bytes is not None


@pytest.mark.parametrize("name", HANGS)
def test_a_hang_is_ended(
    name: str, misbehaviour: Misbehaviour, server: ChildServer, folder: TrialFolder
) -> None:
    misbehaviour.start(HANGS[name])
    record = run_in(server, make_plan(schedule=replace(LONG, stall_s=3.0)), folder)
    row = row_of(record)
    assert row.status == "timeout"
    assert "it reported no progress for schedule.stall_s=3 seconds" in (row.explanation or "")
    assert record.ending.signal == ("SIGKILL" if "deaf" in name else "SIGTERM")
    assert record.ending.pid is not None
    assert not psutil.pid_exists(record.ending.pid)


@pytest.mark.parametrize(
    ("afterwards", "status"),
    [("", "ok"), ("os._exit(1)", "failed"), ("os.kill(os.getpid(), signal.SIGKILL)", "killed")],
    ids=["ok", "failed", "killed"],
)
def test_what_a_child_leaves_running_is_ended(
    afterwards: str,
    status: str,
    misbehaviour: Misbehaviour,
    server: ChildServer,
    folder: TrialFolder,
    tmp_path: Path,
) -> None:
    """In a session of its own, deaf to SIGTERM and with an empty environment."""
    marker = tmp_path / "pid"
    both = f"def both():\n    act()\n    {afterwards or 'pass'}\non_cycle(2, both)"
    misbehaviour.start(f"{DAEMON}marker = {str(marker)!r}\n{both}")
    record = run_in(server, make_plan(), folder)
    assert (record.status, record.ending.left_behind) == (status, 1)
    assert "left_behind" in row_of(record).remarks
    assert not psutil.pid_exists(int(marker.read_text()))


def test_a_timeout_ends_the_descendants_too(
    misbehaviour: Misbehaviour, server: ChildServer, folder: TrialFolder, tmp_path: Path
) -> None:
    marker = tmp_path / "pid"
    misbehaviour.start(f"{DAEMON}marker = {str(marker)!r}\non_cycle(2, act)\n{HANGS['deaf']}")
    record = run_in(server, make_plan(schedule=replace(LONG, stall_s=3.0)), folder)
    assert (record.status, record.ending.signal) == ("timeout", "SIGKILL")
    assert not psutil.pid_exists(int(marker.read_text()))


def test_a_killed_server_takes_its_descendants_along(
    misbehaviour: Misbehaviour, server: ChildServer, folder: TrialFolder, tmp_path: Path
) -> None:
    marker = tmp_path / "pid"
    code = DAEMON.replace("env={}", "env=os.environ")
    misbehaviour.start(
        f"{code}marker = {str(marker)!r}\n"
        "def both():\n    act()\n    os.kill(os.getppid(), signal.SIGKILL)\non_cycle(2, both)"
    )
    record = run_in(server, make_plan(schedule=LONG), folder)
    assert (record.status, record.ending.signal) == ("killed", "SIGKILL")
    pid = int(marker.read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    misbehaviour.stop()
    assert run_in(server, make_plan(), TrialFolder(tmp_path / "next")).status == "ok"


def test_a_flood_of_output_is_cut_to_its_ends(
    misbehaviour: Misbehaviour, server: ChildServer, folder: TrialFolder
) -> None:
    misbehaviour.start(
        "line = b'x' * 99_999 + b'\\n'\n"
        "def flood():\n"
        "    os.write(1, b'the first line\\n')\n"
        "    for _ in range(2000): os.write(1, line); time.sleep(0.0005)\n"
        "    os.write(1, b'the last line\\n')\n"
        "    os._exit(1)\n"
        "on_cycle(2, flood)"
    )
    record = run_in(server, make_plan(), folder)
    assert record.status == "failed"
    assert folder.log.stat().st_size < LIMIT_BYTES + 64 * 2**20
    assert "the first line" in folder.log.read_text()[:10_000]
    assert (record.ending.log_tail or "").endswith("the last line\n")


def test_a_kill_by_the_kernel_for_lack_of_memory_is_told(
    misbehaviour: Misbehaviour, server: ChildServer, folder: TrialFolder
) -> None:
    group = limited_group(folder.path.parent.name, 600 * 2**20)
    try:
        misbehaviour.start(
            f"def fill():\n"
            f"    Path({str(group)!r}, 'cgroup.procs').write_text(str(os.getpid()))\n"
            "    full = [os.urandom(2**24) for _ in range(200)]\n"
            "on_cycle(2, fill)"
        )
        record = run_in(server, make_plan(), folder)
    finally:
        group.rmdir()
    assert (record.status, record.ending.signal) == ("killed", "SIGKILL")
    assert "host memory ran out: the kernel's out-of-memory killer struck" in (
        record.ending.explanation or ""
    )


def limited_group(name: str, size: int) -> Path:
    """A memory control group below this process's own; the test is skipped where none can be made."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root, f"dmad-sweep-{name}-{os.getpid()}")
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(size))
        except OSError:
            group.rmdir()
            continue
        return group
    pytest.skip("no memory control group can be made here")
