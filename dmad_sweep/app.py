"""`python -m dmad_sweep`: one trial, or with `-m` a sweep; then its table."""

import re
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from dmad_sweep.config.axes import as_override
from dmad_sweep.config.entry import INTERRUPTED, REFUSED, run, settings_of
from dmad_sweep.errors import ConfigError, DmadSweepError
from dmad_sweep.records.files import OutputsFolder, find_outputs
from dmad_sweep.sweep.current import current_sweep, forget_sweep

SWEEP_NAME = re.compile(r"sweep\.name=([A-Za-z0-9_.-]+)")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 all have their result, 1 some lack it or fail their check, 2 refused, 130 interrupted, or
    128 and the number of the signal that ended it."""
    arguments = _continued(list(sys.argv[1:] if argv is None else argv))
    code = 1
    with _signals_interrupt() as received:
        try:
            code = run(task, arguments, extra_overrides=[f"sweep.name={_new_name()}"], sweeps=True)
        finally:
            code = _finish(code)
    return 128 + received[0] if received and code == INTERRUPTED else code


@contextmanager
def _signals_interrupt() -> Iterator[list[int]]:
    """SIGTERM and SIGHUP end a sweep as Ctrl-C does: children stopped, runs closed, the table shown.

    What was received is in the list. A second one while the sweep is being closed changes nothing.
    """
    received: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        received.append(number)
        if len(received) == 1:
            raise KeyboardInterrupt

    handled = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in handled]
    try:
        yield received
    finally:
        for number, handler in zip(handled, before, strict=True):
            signal.signal(number, handler)


def task(config: DictConfig) -> list[dict[str, Any]]:
    """One combination, in whichever process the launcher chose for it: id and status of each trial."""
    from hydra.core.hydra_config import HydraConfig

    index = int(HydraConfig.get().job.num)
    settings = settings_of(config)
    sweep = current_sweep()
    if sweep is not None:
        records = sweep.run(settings, index)
    else:
        from dmad_sweep.sweep.sweep import run_elsewhere

        records = run_elsewhere(settings, index)
    return [{"trial_id": record.plan.trial_id, "status": record.status} for record in records]


def _finish(code: int) -> int:
    """Close the sweep and show its table, whatever ended it."""
    try:
        sweep = current_sweep()
    except ConfigError:
        return code  # refused, and said so, before anything started
    if sweep is None or (code == REFUSED and not sweep.begun):
        return code
    try:
        answers = sweep.finish(interrupted=code == INTERRUPTED)
        if not answers:
            return code
        from dmad_sweep.analysis.baseline import lack_baseline
        from dmad_sweep.report import keep, show_rows
        from dmad_sweep.tracking.location import redacted

        settings = sweep.settings
        rows = sweep.rows()
        print()
        if rows:
            baselines = sweep.baselines() if lack_baseline(rows) else []
            show_rows(rows, baselines, settings.report, settings.target)
            if settings.report.keep and sweep.store_error is None:
                keep(sweep.store, rows, baselines, settings.report, settings.target)
        if sweep.store_error is not None:
            print(f"dmad_sweep: {sweep.store_error}", file=sys.stderr)
            print(
                f"dmad_sweep: not all of this is in MLflow yet; the records are in {sweep.folder.path}, and "
                "the next sweep with this store imports them, or: "
                f"{_report_command(sweep.folder.name, settings)} report.import_records=true",
                file=sys.stderr,
            )
            if code == INTERRUPTED:
                print(f"continue with:         {redacted(shlex.join(sys.orig_argv))}")
            return code or 1
        print(f"show this table again: {_report_command(sweep.folder.name, settings)}")
        print(f"open it in MLflow:     {sweep.store.ui_command()}")
        if code == INTERRUPTED:
            print(f"continue with:         {redacted(shlex.join(sys.orig_argv))}")
    except DmadSweepError as error:
        print(f"dmad_sweep: {error}", file=sys.stderr)
        return code or 1
    finally:
        forget_sweep()
    return code or int(not all(answers))


def _report_command(name: str, settings: Any) -> str:
    """The report's command with what differs from the defaults here."""
    from dmad_sweep.config.schema import Tracking
    from dmad_sweep.tracking.location import redacted

    parts = ["python", "-m", "dmad_sweep.report", f"report.sweep={name}"]
    if settings.outputs != str(find_outputs(Path.cwd())):
        parts.append(as_override("outputs", settings.outputs))
    if settings.tracking.uri is not None:
        parts.append(as_override("tracking.uri", redacted(settings.tracking.uri)))
    if settings.tracking.experiment != Tracking().experiment:
        parts.append(as_override("tracking.experiment", settings.tracking.experiment))
    parts += [f"target.{name}={value}" for name, value in vars(settings.target).items() if value is not None]
    return shlex.join(parts)


def _continued(arguments: list[str]) -> list[str]:
    """The arguments with the next free name for a sweep that is there already: a sweep is never changed.

    What the earlier one measured is taken over, so that the same command continues it. Only a name and an
    outputs folder of the command line are seen here; one of a file is refused later.
    """
    named = {match[1]: i for i, token in enumerate(arguments) if (match := SWEEP_NAME.fullmatch(token))}
    if len(named) != 1 or "resume=false" in [token.lower() for token in arguments]:
        return arguments
    ((name, position),) = named.items()
    chosen = [token.partition("=")[2] for token in arguments if token.startswith("outputs=")]
    outputs = OutputsFolder(Path(chosen[-1]) if chosen else find_outputs(Path.cwd()))
    if not outputs.sweep(name).trials():
        return arguments
    free = next(new for n in count(2) if not outputs.sweep(new := f"{name}-{n}").path.exists())
    print(f"sweep {name} is there already: continuing it as {free}", file=sys.stderr)
    return [*arguments[:position], f"sweep.name={free}", *arguments[position + 1 :]]


def _new_name() -> str:
    """Sorts by time; the suffix tells two sweeps of one second apart."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
