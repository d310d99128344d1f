"""`hydra/sweeper=axes`: Hydra's basic sweeper for axes whose options are numbers.

Every Hydra application of the environment imports this module, so it imports nothing of the project
before it sweeps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn


@dataclass
class AxisSweeperConfig:
    _target_: str = "hydra_plugins.dmad_sweep.sweeper.AxisSweeper"
    max_batch_size: int | None = None
    params: dict[str, Any] | None = field(default_factory=dict)


ConfigStore.instance().store(group="hydra/sweeper", name="axes", node=AxisSweeperConfig)


class AxisSweeper(BasicSweeper):
    """Takes numbers in `hydra.sweeper.params`, and checks all combinations before one is launched.

    Unlike the basic sweeper it saves no multirun.yaml, which would hold the tracking URI as it was given.
    """

    def sweep(self, arguments: list[str]) -> Any:
        from dmad_sweep.config.entry import normalise_from, settings_of

        assert self.config is not None
        assert self.launcher is not None
        assert self.hydra_context is not None
        loader = self.hydra_context.config_loader
        params = normalise_from([f"{key}={value}" for key, value in self.params.items()], loader)
        overrides = OverridesParser.create(config_loader=loader).parse_overrides([*params, *arguments])
        batches = self.split_arguments(overrides, self.max_batch_size)
        for batch in batches:
            for combination in batch:
                settings_of(loader.load_sweep_config(self.config, list(combination)))
        returns: list[Sequence[JobReturn]] = []
        for batch in batches:
            done = sum(len(earlier) for earlier in returns)
            returns.append(self.launcher.launch(batch, initial_job_idx=done))
            for job in returns[-1]:
                _ = job.return_value  # raises what the job raised
        return returns
