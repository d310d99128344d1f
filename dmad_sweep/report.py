"""`python -m dmad_sweep.report`: the table of a sweep, from MLflow alone."""

import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

from omegaconf import DictConfig

from dmad_sweep.analysis.baseline import lack_baseline
from dmad_sweep.analysis.table import render
from dmad_sweep.config.entry import run, settings_of
from dmad_sweep.config.project import conf_folder
from dmad_sweep.config.schema import Report
from dmad_sweep.errors import ConfigError
from dmad_sweep.records.files import OutputsFolder
from dmad_sweep.records.row import Row
from dmad_sweep.records.settings import Target
from dmad_sweep.tracking.store import Store

WIDTH_OF_A_PIPE = 160


def main(argv: Sequence[str] | None = None) -> int:
    return run(task, sys.argv[1:] if argv is None else argv, config_name="report")


def task(config: DictConfig) -> None:
    settings = settings_of(config)
    outputs = OutputsFolder(Path(settings.outputs))
    wanted = settings.report.import_records
    store = Store.open(settings.tracking.uri, settings.tracking.experiment, outputs, create=wanted)
    if wanted:
        _import_records(outputs, store)
    show(store, settings.report, settings.target)


def _import_records(outputs: OutputsFolder, store: Store) -> None:
    """What this tells goes to standard error: the table may be piped into a file."""
    from dmad_sweep.sweep.catching_up import import_all
    from dmad_sweep.sweep.devices import Nvml
    from dmad_sweep.sweep.provenance import provenance
    from dmad_sweep.sweep.recovery import recover

    def say(line: str) -> None:
        print(line, file=sys.stderr)

    if left := recover(outputs, provenance(conf_folder(), Nvml().driver)):
        say(f"{left} trials of sweeps that were killed have a record now")
    import_all(outputs, store, say)


def show(store: Store, report: Report, target: Target, stream: TextIO | None = None) -> None:
    """Print the table to `stream` (standard output), or write it to the file that `report` names.

    Raises:
        TrackingError: the store does not hold what `report` asks for.
        ConfigError: the file cannot be written.
    """
    rows = store.rows(report.sweep)
    show_rows(rows, store.baselines() if lack_baseline(rows) else [], report, target, stream)


def show_rows(
    rows: Sequence[Row],
    baselines: Sequence[Row],
    report: Report,
    target: Target,
    stream: TextIO | None = None,
) -> None:
    """As `show`, of rows that the caller has. Raises ConfigError."""
    stream = stream or sys.stdout
    rendered = partial(
        render,
        rows,
        report.format,
        view=report.view,
        baselines=baselines,
        language=report.language,
        target=target,
    )
    if report.output is not None:
        path = Path(report.output).expanduser()
        try:
            path.write_text(rendered(), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"report.output={path} cannot be written: {error.strerror}") from error
        print(f"wrote {path}", file=stream)
        return
    width = shutil.get_terminal_size((WIDTH_OF_A_PIPE, 24)).columns
    print(rendered(width=width, colour=stream.isatty()), end="", file=stream)


if __name__ == "__main__":
    sys.exit(main())
