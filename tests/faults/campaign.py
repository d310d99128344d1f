"""Faults at random instants in real sweeps of real children, and the checks that nothing was lost."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
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
from faults.misbehaviour import ALL, STATUS, Misbehaviour

ROOT = Path(__file__).parents[2]
BATCHES = (1, 2, 3, 4)

DISTURBED_S = 120.0
"""A command that goes on for longer hangs: its trials take seconds, and stall after `STALL_S`."""

STALL_S = 4

CONSUMED = """
with open(os.environ["MISBEHAVIOUR"] + ".fired", "a") as fired:
    fired.write(f"{os.getpid()} NAME\\n")
Path(os.environ["MISBEHAVIOUR"]).write_text("")
"""
"""One child misbehaves and tells so; those after it find nothing to do."""

STATUS_AFTER_SIGNAL = {signal.SIGSEGV: "failed", signal.SIGSTOP: "timeout"}
"""What else a misbehaving child may be told as, where a signal of ours met it; any other kills it."""


class Campaign:
    """One outputs folder, one command, some faults."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.outputs = OutputsFolder(folder / "out puts")
        self.injected: Counter[str] = Counter()
        self._chance = chance
        self._signalled: set[tuple[int, signal.Signals]] = set()
        self._misbehaviour = Misbehaviour(folder)
        self._fired = folder / "misbehaviour.py.fired"
        self._daemon = folder / "misbehaviour.py.pid"

    def disturb(self, faults: int) -> None:
        """Run the command again and again until so many faults were injected."""
        while self.injected.total() < faults:
            process = subprocess.Popen(
                self._command(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                env=self._environment(),
                start_new_session=True,
            )
            started = time.monotonic()
            while process.poll() is None and self.injected.total() < faults:
                time.sleep(self._chance.uniform(0.2, 2.5))
                if process.poll() is None:
                    self._inject(process)
                if time.monotonic() - started > DISTURBED_S:
                    process.kill()
                    raise AssertionError(f"the command hangs after {dict(self.injected)}")
            process.wait(DISTURBED_S)

    def settle(self) -> None:
        """The same command, undisturbed, must finish the job. Raises AssertionError."""
        self._misbehaviour.stop()
        done = subprocess.run(
            self._command(), env=self._environment(), capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"the undisturbed command ended with {done.returncode}: {done.stderr}"

    def check(self) -> None:
        """Records, store and table agree. Raises AssertionError."""
        records = self._records()
        store = Store.open(None, "dmad_sweep", self.outputs)
        self._check_store(store, records)
        self._check_records(records)
        self._check_processes()

    def _check_store(self, store: Store, records: list[Record]) -> None:
        runs = list(store._tagged({"dmad.kind": "trial"}))
        sweeps = list(store._tagged({"dmad.kind": "sweep"}))
        open_runs = [run.info.run_name for run in [*runs, *sweeps] if run.info.status == "RUNNING"]
        assert not open_runs, f"runs were never closed: {open_runs}"
        logged = Counter(run.data.tags["dmad.trial_id"] for run in runs)
        assert set(logged.values()) <= {1}, f"counted twice: {logged.most_common(3)}"
        on_disk = {record.plan.trial_id: record.status for record in records}
        assert set(logged) == set(on_disk), f"store and disk differ by {set(logged) ^ set(on_disk)}"
        in_store = {run.data.tags["dmad.trial_id"]: run.data.tags["dmad.status"] for run in runs}
        assert in_store == on_disk, "store and disk tell different statuses"
        rows = store.rows("latest")
        assert sorted(row.batch for row in rows) == list(BATCHES), "the table lacks a combination"
        assert {row.status for row in rows} == {"ok"}, "a combination came to no result"

    def _check_records(self, records: list[Record]) -> None:
        measured = [r for r in records if r.reused_from is None and r.status in RESULT_STATUSES]
        assert Counter(r.plan.batch.size for r in measured) == Counter(BATCHES), "measured more than once"
        for folder in self._trial_folders():
            assert folder.record.exists() or not folder.result.exists(), f"no record of a result in {folder}"
        statuses = {record.ending.pid: record.status for record in records if record.reused_from is None}
        for line in self._fired.read_text().splitlines() if self._fired.exists() else []:
            number, name = line.split(" ", 1)
            pid = int(number)
            # the command, or the child again, may have been killed meanwhile; and a PID that only a record
            # of a killed command could tell is unknown
            told = statuses.get(pid, "killed")
            by_us = {after for sent, after in STATUS_AFTER_SIGNAL.items() if (pid, sent) in self._signalled}
            assert told in {STATUS[name], "killed", *by_us}, f"a trial with «{name}» is told as {told}"

    def _check_processes(self) -> None:
        ours = str(self.outputs.path.parent)
        left = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.pid != os.getpid() and (
                    ours in " ".join(process.cmdline()) or ours in process.environ().get("MISBEHAVIOUR", "")
                ):
                    left.append(process)
        assert not left, f"processes are left: {left}"
        if self._daemon.exists():
            assert not psutil.pid_exists(int(self._daemon.read_text())), "a child's daemon is left"

    def _inject(self, process: "subprocess.Popen[str]") -> None:
        name, fault = self._chance.choice(list(self._faults().items()))
        with suppress(psutil.Error, ProcessLookupError, OSError, sqlite3.Error):
            if fault(process):
                self.injected[name] += 1

    def _faults(self) -> dict[str, Callable[["subprocess.Popen[str]"], bool]]:
        def to_child(number: signal.Signals) -> Callable[["subprocess.Popen[str]"], bool]:
            return lambda process: self._signal_child(process, number)

        def to_command(*numbers: signal.Signals) -> Callable[["subprocess.Popen[str]"], bool]:
            return lambda process: self._signal_command(process, *numbers)

        def in_child(name: str) -> Callable[["subprocess.Popen[str]"], bool]:
            return lambda process: self._misbehave(process, name)

        return {
            **{f"child: {name}": in_child(name) for name in ALL},
            "child gets SIGKILL": to_child(signal.SIGKILL),
            "child gets SIGSEGV": to_child(signal.SIGSEGV),
            "child gets SIGSTOP": to_child(signal.SIGSTOP),
            "server gets SIGKILL": self._kill_server,
            "command gets SIGINT": to_command(signal.SIGINT),
            "command gets SIGINT twice": to_command(signal.SIGINT, signal.SIGINT),
            "command gets SIGTERM": to_command(signal.SIGTERM),
            "command gets SIGHUP": to_command(signal.SIGHUP),
            "command gets SIGKILL": to_command(signal.SIGKILL),
            "command and server get SIGKILL": self._kill_command_and_server,
            "store is locked": self._lock_store,
            "record is half written": self._write_half_a_record,
            "progress is garbage": self._write_garbage_progress,
        }

    def _misbehave(self, process: "subprocess.Popen[str]", name: str) -> bool:
        """The next child does, in a random cycle, from loading on."""
        code = ALL[name].replace("on_cycle(2,", f"on_cycle({self._chance.randrange(4)},")
        self._daemon.unlink(missing_ok=True)
        self._misbehaviour.start(CONSUMED.replace("NAME", name) + code)
        deadline = time.monotonic() + 20
        while self._misbehaviour.waits and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        if not self._misbehaviour.waits:
            return True
        self._misbehaviour.stop()
        return False

    def _signal_child(self, process: "subprocess.Popen[str]", number: signal.Signals) -> bool:
        children = [c for c in _children(process) if c.pid != _server(process)]
        if not children:
            return False
        child = self._chance.choice(children)
        child.send_signal(number)
        self._signalled.add((child.pid, number))
        return True

    def _signal_command(self, process: "subprocess.Popen[str]", *numbers: signal.Signals) -> bool:
        for number in numbers:
            process.send_signal(number)
            time.sleep(self._chance.uniform(0, 0.5))
        process.wait(60)
        return True

    def _kill_server(self, process: "subprocess.Popen[str]") -> bool:
        server = _server(process)
        if server is None:
            return False
        os.kill(server, signal.SIGKILL)
        return True

    def _kill_command_and_server(self, process: "subprocess.Popen[str]") -> bool:
        process.kill()
        self._kill_server(process)
        return True

    def _lock_store(self, process: "subprocess.Popen[str]") -> bool:
        if not self.outputs.database.exists():
            return False
        with closing(sqlite3.connect(self.outputs.database, timeout=1)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            time.sleep(self._chance.uniform(0.5, 3))
            connection.rollback()
        return True

    def _write_half_a_record(self, process: "subprocess.Popen[str]") -> bool:
        """As a system without atomic renames might leave it, after the command was killed."""
        running = self._running_trials()
        if not running:
            return False
        process.kill()
        process.wait()
        if not running[-1].record.exists():
            running[-1].record.write_text('{"schema_version": 1, "status": "o')
        return True

    def _write_garbage_progress(self, process: "subprocess.Popen[str]") -> bool:
        running = self._running_trials()
        if not running:
            return False
        with running[-1].progress.open("ab") as progress:
            progress.write(b'{"at": NaN}\n\x00\xff\n[[[[\n{"at": "now"')
        return True

    def _running_trials(self) -> list[TrialFolder]:
        return [
            folder
            for folder in self._trial_folders()
            if folder.progress.exists() and not folder.record.exists()
        ]

    def _command(self) -> list[str]:
        axis = f"batch={','.join(map(str, BATCHES))}"
        return [
            *(sys.executable, "-m", "dmad_sweep", "-m", axis, "resolution=64", "schedule=quick"),
            *(f"schedule.stall_s={STALL_S}", "device=cpu", "baseline=false", f"outputs={self.outputs.path}"),
        ]

    def _environment(self) -> dict[str, str]:
        environment = os.environ | self._misbehaviour.environment | {"OMP_NUM_THREADS": "1"}
        return environment | {"PYTHONPATH": f"{environment['PYTHONPATH']}{os.pathsep}{ROOT}"}

    def _trial_folders(self) -> Iterator[TrialFolder]:
        for sweep in self.outputs.sweeps():
            yield from sweep.trials()

    def _records(self) -> list[Record]:
        found = []
        for folder in self._trial_folders():
            with suppress(RecordError):
                found.append(read_json(Record, folder.record))
        return found


def _children(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    with suppress(psutil.Error):
        return psutil.Process(process.pid).children(recursive=True)
    return []


def _server(process: "subprocess.Popen[str]") -> int | None:
    """The process that starts children: a child of the command with that module in its command line."""
    for child in _children(process):
        with suppress(psutil.Error):
            if child.ppid() == process.pid and "dmad_sweep.child.server" in child.cmdline():
                return int(child.pid)
    return None
