"""`python -m dmad_sweep.report`: the table of a sweep, from MLflow alone."""

import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
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

COMPARE = re.compile(r"(report\.compare=)([\w.-]+,[\w.,-]+)")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = [_quoted(token) for token in (sys.argv[1:] if argv is None else argv)]
    return run(task, arguments, config_name="report")


def _quoted(token: str) -> str:
    """Hydra takes a comma for a list of values to sweep over."""
    found = COMPARE.fullmatch(token)
    return f"{found[1]}'{found[2]}'" if found else token


def task(config: DictConfig) -> None:
    settings = settings_of(config)
    outputs = OutputsFolder(Path(settings.outputs))
    wanted = settings.report.import_records
    store = Store.open(settings.tracking.uri, settings.tracking.experiment, outputs, create=wanted)
    if wanted:
        _import_records(outputs, store)
    if settings.report.compare is not None:
        _compare(store, settings.report)
        return
    show(store, settings.report, settings.target)
    if settings.report.keep:
        if settings.report.sweep == "all":
            raise ConfigError("report.keep=true needs one sweep: name it with report.sweep=NAME")
        rows = store.rows(settings.report.sweep)
        keep(store, rows, store.baselines() if lack_baseline(rows) else [], settings.report, settings.target)


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


def _compare(store: Store, report: Report) -> None:
    from dmad_sweep.analysis.compare import compared, render_comparison

    first, second = (store.sweep_name(name) for name in report.compared)
    comparison = compared((first, second), store.rows(first), store.rows(second))
    _tell(partial(render_comparison, comparison, report.format, language=report.language), report, sys.stdout)


def keep(store: Store, rows: Sequence[Row], baselines: Sequence[Row], report: Report, target: Target) -> bool:
    """Put all that the report says of one sweep's `rows` beside its run in MLflow; whether that was done.

    What keeps it from being done is a warning on standard error: the measurements are safe without it.
    """
    try:
        from dmad_sweep.analysis.answer import answer_of

        answer = answer_of(rows, baselines, view=report.view, language=report.language, target=target)
        with tempfile.TemporaryDirectory() as folder:
            for name, content in answer.files.items():
                path = Path(folder, name)
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(content)
            store.keep_answer(rows[0].sweep, Path(folder), answer.summary)
    except Exception as error:  # whatever a plotting library or a store comes up with
        why = str(error).partition("\n")[0] or type(error).__name__
        print(
            f"dmad_sweep: table and plots were not kept in MLflow ({why}); once that is mended: "
            f"python -m dmad_sweep.report report.sweep={rows[0].sweep} report.keep=true",
            file=sys.stderr,
        )
        return False
    return True


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
    _tell(rendered, report, stream, colour=stream.isatty())


def _tell(rendered: Callable[..., str], report: Report, stream: TextIO, **options: bool) -> None:
    """`rendered` makes the text, as wide as it is asked to. Raises ConfigError."""
    if report.output is not None:
        path = Path(report.output).expanduser()
        try:
            path.write_text(rendered(), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"report.output={path} cannot be written: {error.strerror}") from error
        print(f"wrote {path}", file=stream)
        return
    width = shutil.get_terminal_size((WIDTH_OF_A_PIPE, 24)).columns
    print(rendered(width=width, **options), end="", file=stream)


if __name__ == "__main__":
    sys.exit(main())
