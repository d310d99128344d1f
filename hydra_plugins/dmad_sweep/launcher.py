"""`hydra/launcher=isolated`: checks every combination on this machine, then runs one after the other.

Every Hydra application of the environment imports this module, so it imports nothing of the project
before it launches.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict, read_write


@dataclass
class IsolatedLauncherConfig:
    _target_: str = "hydra_plugins.dmad_sweep.launcher.IsolatedLauncher"


ConfigStore.instance().store(group="hydra/launcher", name="isolated", node=IsolatedLauncherConfig)


class IsolatedLauncher(Launcher):
    """Each task runs its measurement in a process of its own; this launcher only keeps the queue.

    Unlike the basic launcher it refuses what this machine cannot do before the first trial runs, tells
    the sweep how many there will be, and writes no files of Hydra's: a trial's record holds its settings.
    """

    def __init__(self) -> None:
        self._context: HydraContext | None = None
        self._task: TaskFunction | None = None
        self._config: DictConfig | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._context, self._task, self._config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from dmad_sweep.config.entry import settings_of
        from dmad_sweep.sweep.current import current_sweep

        setup_globals()
        configs = [
            self._compose(overrides, initial_job_idx + offset)
            for offset, overrides in enumerate(job_overrides)
        ]
        sweep = current_sweep()
        if sweep is not None:
            sweep.expect([settings_of(_without_hydra(config)) for config in configs], initial_job_idx)
        return [
            self._run(config, list(overrides))
            for config, overrides in zip(configs, job_overrides, strict=True)
        ]

    def _compose(self, overrides: Sequence[str], number: int) -> DictConfig:
        assert self._context is not None
        assert self._config is not None
        config = self._context.config_loader.load_sweep_config(self._config, list(overrides))
        with open_dict(config):
            config.hydra.job.id = str(number)
            config.hydra.job.num = number
        return config

    def _run(self, config: DictConfig, overrides: list[str]) -> JobReturn:
        assert self._context is not None
        assert self._task is not None
        before = Singleton.get_state()
        try:
            HydraConfig.instance().set_config(config)
            job = JobReturn(overrides=overrides, cfg=_without_hydra(config), hydra_cfg=config)
            self._context.callbacks.on_job_start(config=config, task_function=self._task)
            job.return_value = self._task(job.cfg)
            job.status = JobStatus.COMPLETED
            self._context.callbacks.on_job_end(config=config, job_return=job)
            return job
        finally:
            Singleton.set_state(before)


def _without_hydra(config: DictConfig) -> Any:
    task_config = deepcopy(config)
    with read_write(task_config), open_dict(task_config):
        del task_config["hydra"]
    return task_config
