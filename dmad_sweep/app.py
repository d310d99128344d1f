"""`python -m dmad_sweep`: one trial, or with `-m` a sweep; then its table."""

import secrets
import sys
import time
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig

from dmad_sweep.config.entry import run, settings_of
from dmad_sweep.errors import DmadSweepError
from dmad_sweep.sweep.current import current_sweep, forget_sweep

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 all combinations have a result, 1 some do not, 2 a value was refused, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    code = 1
    try:
        code = run(task, arguments, extra_overrides=[f"sweep.name={_new_name()}"])
    finally:
        code = _finish(code)
    return code


def task(config: DictConfig) -> dict[str, Any]:
    """One trial, in whichever process the launcher chose for it."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from dmad_sweep.sweep.sweep import run_elsewhere

    hydra = HydraConfig.get()
    index = int(hydra.job.num) if hydra.mode == RunMode.MULTIRUN else 0
    settings = settings_of(config)
    sweep = current_sweep()
    record = sweep.run(settings, index) if sweep else run_elsewhere(settings, index)
    return {"trial_id": record.plan.trial_id, "status": record.status}


def _finish(code: int) -> int:
    """Close the sweep and show its table, whatever ended it."""
    try:
        sweep = current_sweep()
        if sweep is None:
            return code
        statuses = sweep.finish(interrupted=code == INTERRUPTED)
        if not statuses:
            return code
    except DmadSweepError:
        ...
    finally:
        forget_sweep()
    return code


def _new_name() -> str:
    """Sorts by time; the suffix tells two sweeps of one second apart."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
