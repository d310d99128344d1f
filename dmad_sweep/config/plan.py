"""From settings to the plan of one trial."""

import uuid
from dataclasses import replace
from pathlib import Path

from dmad_sweep.config.schema import Config
from dmad_sweep.errors import ConfigError
from dmad_sweep.records.files import OutputsFolder
from dmad_sweep.records.plan import Plan, PlannedDevice, Role
from dmad_sweep.records.settings import Accumulation, Target

AUTO_MODEL = {"cuda": "sd15", "cpu": "tiny"}


def plan_trial(
    settings: Config,
    device: PlannedDevice,
    sweep: str,
    index: int,
    repeat: int = 0,
    role: Role = "combination",
) -> Plan:
    """The plan of a repeat of combination or baseline `index`, `auto` resolved and paths made absolute.

    Raises:
        ConfigError: a folder that the settings name does not exist.
    """
    model = settings.model
    if model.name == "auto":
        model = replace(model, name=AUTO_MODEL[device.kind])
    if model.pretrained is not None:
        model = replace(model, pretrained=_folder("model.pretrained", model.pretrained))
    accumulation, target = settings.accumulation, Target()  # targets of the advice change no trial
    if accumulation.auto and settings.target.effective_batch is not None:
        steps, rest = divmod(settings.target.effective_batch, settings.batch.size)
        if rest == 0:  # the same trial as one whose steps were given; else capabilities tells why not
            accumulation = Accumulation(steps)
        else:
            target = Target(settings.target.effective_batch)
    data = settings.data
    if data.root is not None:
        data = replace(data, root=_folder("data.root", data.root))
    return Plan(
        trial_id=uuid.uuid4().hex[:16],
        sweep=sweep,
        index=index,
        role=role,
        repeat=repeat,
        isolation=settings.isolation,
        workload=settings.workload.name,
        model=model,
        recipe=settings.recipe,
        batch=settings.batch,
        resolution=settings.resolution,
        accumulation=accumulation,
        target=target,
        precision=settings.precision,
        checkpointing=settings.checkpointing,
        adapter=settings.adapter,
        attention=settings.attention,
        optimizer=settings.optimizer,
        ema=settings.ema,
        data=data,
        phase=settings.phase,
        schedule=settings.schedule,
        memory=settings.memory,
        device=device,
        latents_folder=str(OutputsFolder(Path(settings.outputs)).latents),
    )


def _folder(key: str, value: str) -> str:
    path = Path(value).expanduser().absolute()
    if not path.is_dir():
        raise ConfigError(f"{key}={value} is not allowed: there is no such folder")
    return str(path)
