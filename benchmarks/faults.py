"""Injects faults into real sweeps at random instants, and checks that nothing is lost.

    python benchmarks/faults.py [FAULTS] [SEED]

Small sweeps run on the CPU while children, their server and the sweep itself get signals, the store is locked
and half-written files appear. After every few faults the same command runs undisturbed to its end; then
records, store and table must agree, nothing may be missing or counted twice, and no process may be left. Ends
with exit code 1 at the first disagreement, and prints the seed that repeats it as far as times do.
"""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil

from dmad_sweep.errors import RecordError
from dmad_sweep.records.codec import read_json
from dmad_sweep.records.files import OutputsFolder, TrialFolder
from dmad_sweep.records.record import Record
from dmad_sweep.records.result import RESULT_STATUSES
from dmad_sweep.tracking.store import Store

ROOT = Path(__file__).parents[1]
BATCHES = (1, 2, 3, 4)
FAULTS_PER_ROUND = 10
DISTURBED_S = 60.0
"""A command that a fault made hang ends the run."""


class Campaign:
    """One outputs folder, one command, some faults."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.outputs = OutputsFolder(folder / "out puts")
        self._chance = chance
        self._process: subprocess.Popen[str] | None = None
        self.injected: Counter[str] = Counter()
        self.killed_commands = 0

    def disturb(self, faults: int) -> None:
        """Run the command again and again until so many faults were injected."""
        while self.injected.total() < faults:
            with self._running() as process:
                deadline = time.monotonic() + DISTURBED_S
                while process.poll() is None and self.injected.total() < faults:
                    time.sleep(self._chance.uniform(0.2, 2.5))
                    if process.poll() is None:
                        self._inject(process)
                    if time.monotonic() > deadline:
                        raise AssertionError(f"the command hangs after {self.injected}")

    def settle(self) -> int:
        """The exit code of the undisturbed command."""
        return subprocess.run(
            self._command(), env=_environment(), capture_output=True, timeout=300
        ).returncode

    def check(self) -> None:
        """Records, store and table agree. Raises AssertionError."""
        store = Store.open(None, "dmad_sweep", self.outputs)
        records = self._records()
        runs = list(store._tagged({"dmad.kind": "trial"}))
        assert all(run.info.status != "RUNNING" for run in runs), "a trial's run was never closed"
        sweeps = list(store._tagged({"dmad.kind": "sweep"}))
        assert all(run.info.status != "RUNNING" for run in sweeps), "a sweep's run was never closed"
        logged = Counter(run.data.tags["dmad.trial_id"] for run in runs)
        assert set(logged.values()) <= {1}, f"counted twice: {logged.most_common(3)}"
        on_disk = {record.plan.trial_id for record in records}
        assert set(logged) == on_disk, f"store and disk differ by {set(logged) ^ on_disk}"
        rows = store.rows("latest")
        assert sorted(row.batch for row in rows) == list(BATCHES), "the table lacks a combination"
        assert {row.status for row in rows} == {"ok"}, "a combination came to no result"
        measured = [r for r in records if r.reused_from is None and r.status in RESULT_STATUSES]
        assert Counter(r.plan.batch.size for r in measured) == Counter(BATCHES), "measured more than once"
        for folder in self._trial_folders():
            assert folder.record.exists() or not folder.result.exists(), (
                f"a result without a record: {folder}"
            )
        left = [
            p for p in psutil.process_iter(["cmdline"]) if str(self.outputs.path) in str(p.info["cmdline"])
        ]
        assert not left, f"processes are left: {left}"

    def _inject(self, process: "subprocess.Popen[str]") -> None:
        name, fault = self._chance.choice(list(self._faults().items()))
        with suppress(psutil.Error, ProcessLookupError, OSError, sqlite3.Error):
            if fault(process):
                self.injected[name] += 1

    def _faults(self) -> dict[str, Callable[["subprocess.Popen[str]"], bool]]:
        def to_child(number: signal.Signals) -> Callable[["subprocess.Popen[str]"], bool]:
            return lambda process: self._signal_child(process, number)

        def to_command(number: signal.Signals) -> Callable[["subprocess.Popen[str]"], bool]:
            return lambda process: self._signal_command(process, number)

        return {
            "child SIGKILL": to_child(signal.SIGKILL),
            "child SIGSEGV": to_child(signal.SIGSEGV),
            "child SIGTERM": to_child(signal.SIGTERM),
            "child stopped": to_child(signal.SIGSTOP),
            "server SIGKILL": self._kill_server,
            "command SIGINT": to_command(signal.SIGINT),
            "command SIGTERM": to_command(signal.SIGTERM),
            "command SIGHUP": to_command(signal.SIGHUP),
            "command SIGKILL": to_command(signal.SIGKILL),
            "store locked": self._lock_store,
            "half a result": self._write_half_a_result,
        }

    def _signal_child(self, process: "subprocess.Popen[str]", number: signal.Signals) -> bool:
        children = [c for c in _children(process) if c.pid != _server(process)]
        if not children:
            return False
        self._chance.choice(children).send_signal(number)
        return True

    def _signal_command(self, process: "subprocess.Popen[str]", number: signal.Signals) -> bool:
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        self.killed_commands += 1
        return True

    def _kill_server(self, process: "subprocess.Popen[str]") -> bool:
        server = _server(process)
        if server is None:
            return False
        os.kill(server, signal.SIGKILL)
        return True

    def _lock_store(self, process: "subprocess.Popen[str]") -> bool:
        if not self.outputs.database.exists():
            return False
        with closing(sqlite3.connect(self.outputs.database, timeout=1)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            time.sleep(self._chance.uniform(0.5, 3))
            connection.rollback()
        return True

    def _write_half_a_result(self, process: "subprocess.Popen[str]") -> bool:
        running = [folder for folder in self._trial_folders() if not folder.record.exists()]
        if not running:
            return False
        running[-1].result.write_text('{"schema_version": 1, "status": "o')
        for child in _children(process):
            if child.pid != _server(process):
                child.kill()
        return True

    def _running(self) -> "_Running":
        return _Running(self._command())

    def _command(self) -> list[str]:
        axis = f"batch={','.join(map(str, BATCHES))}"
        options = ["resolution=64", "schedule=quick", "schedule.stall_s=6", "device=cpu", "baseline=false"]
        return [
            sys.executable, "-m", "dmad_sweep", "-m", axis, *options, f"outputs={self.outputs.path}"
        ]  # fmt: skip

    def _trial_folders(self) -> Iterator[TrialFolder]:
        for path in sorted((self.outputs.path / "sweeps").glob("*")):
            yield from self.outputs.sweep(path.name).trials()

    def _records(self) -> list[Record]:
        found = []
        for folder in self._trial_folders():
            with suppress(RecordError):
                found.append(read_json(Record, folder.record))
        return found


class _Running:
    def __init__(self, command: list[str]) -> None:
        self._command = command

    def __enter__(self) -> "subprocess.Popen[str]":
        self._process = subprocess.Popen(
            self._command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            env=_environment(),
            start_new_session=True,
        )
        return self._process

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.wait(120)


def _environment() -> dict[str, str]:
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def _children(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    with suppress(psutil.Error):
        return psutil.Process(process.pid).children(recursive=True)
    return []


def _server(process: "subprocess.Popen[str]") -> int | None:
    """The process that forks children: a child of the command with that module in its command line."""
    for child in _children(process):
        with suppress(psutil.Error):
            if child.ppid() == process.pid and "dmad_sweep.child.server" in child.cmdline():
                return int(child.pid)
    return None


def main(faults: int, seed: int) -> int:
    print(f"seed {seed}")
    chance = random.Random(seed)
    total: Counter[str] = Counter()
    started, rounds = time.monotonic(), 0
    while total.total() < faults:
        with tempfile.TemporaryDirectory() as folder:
            campaign = Campaign(Path(folder), chance)
            try:
                campaign.disturb(FAULTS_PER_ROUND)
                code = campaign.settle()
                assert code == 0, f"the undisturbed command ended with {code}"
                campaign.check()
            except AssertionError as error:
                print(f"after {dict(campaign.injected)} in round {rounds + 1}: {error}")
                return 1
            total += campaign.injected
            rounds += 1
            print(f"round {rounds}: {total.total()} faults, {time.monotonic() - started:.0f} s", flush=True)
    for name, count in sorted(total.items()):
        print(f"{count:5d}  {name}")
    print(f"{total.total()} faults in {rounds} rounds, nothing lost")
    return 0


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:3]]
    sys.exit(main(*(arguments + [200, random.randrange(10**6)][len(arguments) :])))
