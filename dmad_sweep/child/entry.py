"""The measured process: plan.json in, result.json out, whatever happens in between.

Importing this module must not load torch: environment variables that torch reads at import are set first.
"""

import faulthandler
import logging
import os
import sys
import traceback
from typing import TYPE_CHECKING

from dmad_sweep.child.lifeline import die_with_parent
from dmad_sweep.records.codec import read_json, write_json
from dmad_sweep.records.files import TrialFolder
from dmad_sweep.records.plan import Plan
from dmad_sweep.records.result import Failure, Result

if TYPE_CHECKING:
    import torch


def run(folder: TrialFolder, task: str, parent: int) -> int:
    """Carry out one task for the trial in `folder`; its outcome is in the files, the return an exit code.

    `encode` fills the latent cache, `measure` is the trial. The death of the process `parent` ends this one.
    """
    die_with_parent(parent)
    _redirect_output(folder)
    try:
        plan = read_json(Plan, folder.plan)
        _choose_device(plan)
        if task == "encode":
            _encode(plan)
        else:
            write_json(folder.result, _measure(plan, folder))
        return 0
    except BaseException as error:
        traceback.print_exc()
        write_json(folder.result, _failed(error, "data.encode" if task == "encode" else "start"))
        return 1


def _measure(plan: Plan, folder: TrialFolder) -> Result:
    from dmad_sweep.child.loop import Measurement
    from dmad_sweep.child.memory import create_meter

    device = _device(plan)
    return Measurement(plan, device, create_meter(plan.device, device), folder).run()


def _device(plan: Plan) -> "torch.device":
    import torch

    if plan.device.kind == "cuda":
        if not torch.cuda.is_available():
            raise RuntimeError(
                "torch cannot use the GPU that NVML shows: its build or the driver does not fit; "
                "device=cpu measures on the CPU"
            )
        return torch.device("cuda", 0)
    return torch.device("cpu")


def _encode(plan: Plan) -> None:
    from dmad_sweep.workload.images import encode_missing

    encode_missing(plan, _device(plan))


def _failed(error: BaseException, stage: str) -> Result:
    """Something went wrong before a measurement could say so itself."""
    from dmad_sweep.child.exhaustion import recognise
    from dmad_sweep.errors import UnsupportedError
    from dmad_sweep.records.result import OutOfMemory

    exhaustion = recognise(error)
    if exhaustion is not None:
        return Result(
            status="oom",
            pid=os.getpid(),
            environment={},
            out_of_memory=OutOfMemory(
                stage=stage,
                cycle=0,
                requested_bytes=exhaustion.requested_bytes,
                certain=exhaustion.certain,
                message=str(error)[:2000],
            ),
        )
    return Result(
        status="invalid" if isinstance(error, UnsupportedError) else "failed",
        pid=os.getpid(),
        environment={},
        failure=Failure(
            stage=stage,
            cycle=0,
            kind=type(error).__name__,
            message=str(error)[:2000],
            traceback=traceback.format_exc()[-20000:],
        ),
    )


def _choose_device(plan: Plan) -> None:
    """Let CUDA see the planned device alone, by UUID: its own order of devices differs from NVML's."""
    os.environ["CUDA_VISIBLE_DEVICES"] = plan.device.uuid or ""


def _redirect_output(folder: TrialFolder) -> None:
    """Everything that this process prints, a crash's stack included, goes to the trial's log."""
    log = os.open(folder.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.close(nothing)
    faulthandler.enable(file=sys.stderr)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
