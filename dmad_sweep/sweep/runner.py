"""What carries trials: the devices, a way of starting children, and the identity of the code."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from filelock import FileLock

from dmad_sweep.config.plan import plan_trial
from dmad_sweep.config.project import conf_folder
from dmad_sweep.config.schema import Config
from dmad_sweep.errors import ConfigError, OutputsError
from dmad_sweep.records.baseline import Conditions, planned_conditions
from dmad_sweep.records.files import OutputsFolder, SweepFolder
from dmad_sweep.records.key import TrialKey, trial_key
from dmad_sweep.records.plan import Plan, Role
from dmad_sweep.records.record import Record
from dmad_sweep.sweep import device_lock
from dmad_sweep.sweep.devices import Nvml, choose_device
from dmad_sweep.sweep.isolation import ChildServer, Isolation
from dmad_sweep.sweep.provenance import provenance, torch_version, version_of
from dmad_sweep.sweep.recovery import recover
from dmad_sweep.sweep.strangers import refuse_if_in_use
from dmad_sweep.sweep.trial import OnProgress, run_trial

LIBRARIES = ("bitsandbytes", "diffusers", "transformers")
"""Beside torch, whose code runs in a trial."""


class TrialRunner:
    """Plans and runs trials of one sweep, one after the other."""

    def __init__(self, sweep: str) -> None:
        self._sweep = sweep
        self._nvml = Nvml()
        self._provenance = provenance(conf_folder(), self._nvml.driver)
        self._isolations: dict[str, Isolation] = {}

    def plan(self, settings: Config, index: int, repeat: int = 0, role: Role = "combination") -> Plan:
        """Raises ConfigError for what this machine cannot do, and for a trial that is there already."""
        folder = sweep_folder(settings)
        if folder.trial(index, repeat, role).path.exists():
            raise name_taken(folder)
        device = choose_device(settings.device, self._nvml)
        # once a trial has begun, the sweep's own processes may be on the device
        if settings.device.require_idle and not folder.trials():
            refuse_if_in_use(device, self._nvml)
        plan = plan_trial(settings, device, self._sweep, index, repeat, role)
        return replace(plan, key=self._key(plan))

    def conditions(self, plan: Plan) -> Conditions:
        """What the trial's row will have in common with its baseline."""
        return planned_conditions(plan, self._provenance, torch_version())

    def _key(self, plan: Plan) -> TrialKey:
        return trial_key(
            plan,
            host=self._provenance.host,
            code=self._provenance.code_hash,
            driver=self._provenance.driver,
            torch=torch_version(),
            libraries={name: version_of(name) for name in LIBRARIES},
            environment=dict(os.environ),
        )

    def prepare(self, settings: Config) -> None:
        """Start what takes long to start, without waiting for it."""
        self._isolation(settings.isolation, sweep_folder(settings))

    def run(
        self,
        settings: Config,
        plan: Plan,
        on_start: Callable[[Plan], None] = lambda _: None,
        on_progress: OnProgress = lambda _: None,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> Record:
        """A trial that was planned with these settings, to its record; it waits for the device to be free.

        Raises:
            IsolationError: no child can be started.
            OutputsError: the outputs folder cannot be written any more.
        """
        folder = sweep_folder(settings)
        isolation = self._isolation(plan.isolation, folder)
        isolation.ready()
        trial = folder.trial_of(plan)
        with device_lock.hold(plan.device, on_wait):
            on_start(plan)
            try:
                trial.path.mkdir(parents=True, exist_ok=True)
                with FileLock(trial.running):  # tells others that the trial is watched, see recovery
                    return run_trial(plan, trial, isolation, self._nvml, self._provenance, on_progress)
            except OSError as error:
                raise OutputsError(trial.path, error) from error

    def recover(self, settings: Config) -> int:
        """Complete what dead processes left in the outputs folder; the number of such trials."""
        return recover(OutputsFolder(Path(settings.outputs)), self._provenance)

    def close(self) -> None:
        for isolation in self._isolations.values():
            isolation.close()
        self._isolations.clear()

    def _isolation(self, name: str, folder: SweepFolder) -> Isolation:
        if name not in self._isolations:
            try:
                folder.path.mkdir(parents=True, exist_ok=True)
                folder.server_log.touch()
            except OSError as error:
                raise ConfigError(f"outputs: {folder.path} cannot be written ({error.strerror})") from error
            self._isolations[name] = ChildServer(name, folder.server_log)
        return self._isolations[name]


def name_taken(folder: SweepFolder) -> ConfigError:
    return ConfigError(
        f"sweep.name={folder.name} is not allowed: {folder.path} holds a sweep of that name "
        "already; choose another or leave it out (what it measured is taken over with resume=true)"
    )


def sweep_folder(settings: Config) -> SweepFolder:
    """Raises ConfigError where a file of the user's own takes the name away that every sweep is given."""
    if settings.sweep.name is None:
        raise ConfigError("sweep.name=null is not allowed: leave it out, or give a name")
    return OutputsFolder(Path(settings.outputs)).sweep(settings.sweep.name)
