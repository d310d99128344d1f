"""The sweep that this process launched: declared by Hydra's callback, found by launcher, task and entry."""

import os
from typing import TYPE_CHECKING, Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

if TYPE_CHECKING:
    from dmad_sweep.sweep.sweep import Sweep

_declared: tuple[int, DictConfig] | None = None
_sweep: "Sweep | None" = None


class DeclareSweep(Callback):
    """Called in the launching process alone, whatever the launcher is, before anything is launched.

    Hydra turns an exception of a callback into a warning, so here the configuration is only noted.
    """

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        _declare(config)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        _declare(config)


def current_sweep() -> "Sweep | None":
    """The sweep launched by this process; None in a worker of another launcher.

    Raises:
        ConfigError: on the first call, for settings that are refused.
    """
    global _sweep
    if _declared is None or _declared[0] != os.getpid():
        return None
    if _sweep is None:
        from dmad_sweep.config.entry import settings_of
        from dmad_sweep.sweep.sweep import Sweep

        _sweep = Sweep(settings_of(_declared[1]))
    return _sweep


def forget_sweep() -> None:
    """The command is over; a second one in this process declares its own."""
    global _declared, _sweep
    _declared, _sweep = None, None


def _declare(config: DictConfig) -> None:
    global _declared
    _declared = (os.getpid(), config)
