"""Every file and folder name of the project, in one place."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from dmad_sweep.records.plan import Plan, Role

TRIAL = re.compile(r"(baseline-)?(\d+)(?:-(\d+))?")
"""Role, index and repeat in the name of a trial's folder."""


@dataclass(frozen=True)
class TrialFolder:
    """The folder of one trial."""

    path: Path

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def record(self) -> Path:
        return self.path / "record.json"

    @property
    def log(self) -> Path:
        return self.path / "child.log"

    @property
    def running(self) -> Path:
        """Locked for as long as the process lives that watches the trial."""
        return self.path / "running.lock"

    @property
    def reserve(self) -> Path:
        """Room for the record, taken while there is some."""
        return self.path / ".reserve"

    @property
    def snapshot(self) -> Path:
        """The allocator's history, for pytorch.org/memory_viz."""
        return self.path / "memory_snapshot.pickle"

    @property
    def progress(self) -> Path:
        """One JSON object a line: the stage that the child has entered."""
        return self.path / "progress.jsonl"


@dataclass(frozen=True)
class SweepFolder:
    """The folder of one sweep.

    Its trials are `trials/000`, `001`, …, further repeats `001-1`, …, baselines `baseline-000`, …
    """

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def server_log(self) -> Path:
        """What the process that forks trials printed."""
        return self.path / "server.log"

    @property
    def running(self) -> Path:
        """Locked for as long as the process lives that launched the sweep."""
        return self.path / "running.lock"

    @property
    def waiting(self) -> Path:
        """Names the store that may lack trials of this sweep; gone once it has them all."""
        return self.path / "waiting_for_store"

    @property
    def lock(self) -> Path:
        """Held while the sweep's run is created in the store."""
        return self.path / "sweep.lock"

    def trial(self, index: int, repeat: int = 0, role: Role = "combination") -> TrialFolder:
        name = f"{index:03d}-{repeat}" if repeat else f"{index:03d}"
        prefix = "baseline-" if role == "baseline" else ""
        return TrialFolder(self.path / "trials" / (prefix + name))

    def trial_of(self, plan: Plan) -> TrialFolder:
        return self.trial(plan.index, plan.repeat, plan.role)

    def trials(self) -> list[TrialFolder]:
        """Folders of the trials begun so far, in order, baselines last."""
        found = [(TRIAL.fullmatch(path.name), path) for path in (self.path / "trials").glob("*")]
        known = [(bool(m[1]), int(m[2]), int(m[3] or 0), path) for m, path in found if m]
        return [TrialFolder(path) for *_, path in sorted(known)]


@dataclass(frozen=True)
class OutputsFolder:
    """Where everything lands."""

    path: Path

    def sweep(self, name: str) -> SweepFolder:
        return SweepFolder(self.path / "sweeps" / name)

    def sweeps(self) -> list[SweepFolder]:
        """Folders of all sweeps, by name."""
        return [SweepFolder(path) for path in sorted((self.path / "sweeps").glob("*")) if path.is_dir()]

    @property
    def database(self) -> Path:
        return self.path / "mlflow.db"

    @property
    def store_lock(self) -> Path:
        """Held while the database is created."""
        return self.path / "mlflow.db.lock"

    @property
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    @property
    def latents(self) -> Path:
        """Encoded pictures, keyed by content."""
        return self.path / "latents"


def find_outputs(start: Path) -> Path:
    """The outputs folder of the project that `start` lies in.

    The nearest folder upward that already holds a store wins; else `outputs` beside the nearest
    pyproject.toml or .git, so that every working directory of a project finds the same store; else
    `outputs` in `start` itself. DMAD_OUTPUTS overrides all.
    """
    if chosen := os.environ.get("DMAD_OUTPUTS"):
        return Path(chosen).expanduser().absolute()
    start = start.absolute()
    ancestors = [start, *start.parents]
    for folder in ancestors:
        if OutputsFolder(folder / "outputs").database.exists():
            return folder / "outputs"
    for folder in ancestors:
        if (folder / "pyproject.toml").exists() or (folder / ".git").exists():
            return folder / "outputs"
    return start / "outputs"
