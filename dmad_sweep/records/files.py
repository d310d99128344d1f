"""Every file and folder name of the project, in one place."""

import os
from dataclasses import dataclass
from pathlib import Path


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
    def progress(self) -> Path:
        """One JSON object a line: the stage that the child has entered."""
        return self.path / "progress.jsonl"


@dataclass(frozen=True)
class SweepFolder:
    """The folder of one sweep: `trials/000`, `trials/001`, …; further repeats are `001-1`, `001-2`, …"""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def server_log(self) -> Path:
        """What the process that forks trials printed."""
        return self.path / "server.log"

    @property
    def lock(self) -> Path:
        """Held while the sweep's run is created in the store."""
        return self.path / "sweep.lock"

    def trial(self, index: int, repeat: int = 0) -> TrialFolder:
        name = f"{index:03d}-{repeat}" if repeat else f"{index:03d}"
        return TrialFolder(self.path / "trials" / name)

    def trials(self) -> list[TrialFolder]:
        """Folders of the trials begun so far, in order."""
        found = (self.path / "trials").glob("[0-9]*")
        return [TrialFolder(path) for path in sorted(found, key=_position)]


def _position(trial: Path) -> tuple[int, int]:
    """Index and repeat that name a trial's folder."""
    index, _, repeat = trial.name.partition("-")
    return int(index), int(repeat or 0)


@dataclass(frozen=True)
class OutputsFolder:
    """Where everything lands."""

    path: Path

    def sweep(self, name: str) -> SweepFolder:
        return SweepFolder(self.path / "sweeps" / name)

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
