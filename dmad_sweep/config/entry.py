"""How every entry point meets Hydra: one configuration tree, one way in which errors are told."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dmad_sweep.config import schema, source
from dmad_sweep.config.axes import normalise
from dmad_sweep.config.messages import in_our_words, suggestion
from dmad_sweep.config.project import conf_folder
from dmad_sweep.config.schema import Config
from dmad_sweep.errors import ConfigError
from dmad_sweep.records.files import find_outputs

REFUSED_BY_HYDRA, REFUSED, INTERRUPTED = 1, 2, 130
FULL_ERROR = "HYDRA_FULL_ERROR"


# At import, because a worker process of another launcher only imports what it unpickles.
OmegaConf.register_new_resolver("dmad.outputs", lambda: str(find_outputs(Path.cwd())), replace=True)


def run(
    task: Callable[[DictConfig], Any],
    argv: Sequence[str],
    *,
    config_name: str = "config",
    extra_overrides: Sequence[str] = (),
    sweeps: bool = False,
) -> int:
    """Compose `config_name` with the command line `argv` and run `task` with the configuration.

    With `sweeps`, `-m` runs one task for each combination, and a single run is a sweep of one.
    `extra_overrides` fill keys that neither files nor the command line set. Errors that a person can act on
    become a line or two on standard error and an exit code; a fault of the program keeps its traceback, and
    with HYDRA_FULL_ERROR=1 every error does.
    """
    full_error = os.environ.get(FULL_ERROR) == "1"
    try:
        _run(task, list(argv), config_name, extra_overrides, sweeps)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except Exception as error:
        refusal = in_our_words(error)
        if refusal is None or full_error:
            raise
        print(f"dmad_sweep: {refusal}", file=sys.stderr)
        return REFUSED if isinstance(refusal, ConfigError) else REFUSED_BY_HYDRA
    return 0


def settings_of(config: DictConfig) -> Config:
    """The composed configuration as checked dataclasses. Raises ConfigError, naming the key."""
    known = {key: config._get_node(key) for key in config if key != "hydra"}
    try:
        typed = OmegaConf.merge(OmegaConf.structured(Config), known)
        settings = OmegaConf.to_object(typed)
    except OmegaConfBaseException as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"{error.full_key}: {reason}{suggestion(error.full_key or '')}") from None
    assert isinstance(settings, Config)
    settings.outputs = str(Path(settings.outputs).expanduser().absolute())
    return settings


def _run(
    task: Callable[[DictConfig], Any],
    arguments: list[str],
    config_name: str,
    extra_overrides: Sequence[str],
    sweeps: bool,
) -> None:
    schema.register()
    source.register()
    conf = conf_folder()
    parsed = get_args_parser().parse_intermixed_args(arguments)
    flags = _without(arguments, parsed.overrides)
    folders = [Path(parsed.config_dir), conf] if parsed.config_dir else [conf]
    overrides = normalise(parsed.overrides, lambda group: _options(folders, group))
    only_shows = parsed.shell_completion or parsed.hydra_help or parsed.help or parsed.cfg or parsed.info
    if not only_shows:
        _set_defaults(extra_overrides)
        nulls = {f"{override.partition('=')[0]}=null" for override in extra_overrides}
        overrides = [override for override in overrides if override.lstrip("+") not in nulls]
        if sweeps and not parsed.multirun:
            _require_one_combination(overrides)
            flags.append("--multirun")
            overrides.append("hydra.sweeper.params=null")  # a file's axes are swept with -m alone
    composed: list[DictConfig] = []
    # A task that raises inside Hydra's own run gets a line of Hydra's printed before it.
    decorated = hydra.main(version_base="1.3", config_path=str(conf), config_name=config_name)(
        task if sweeps else composed.append
    )
    with _arguments([*overrides, *flags]), _full_errors():
        decorated()
    for config in composed:
        task(config)


def _set_defaults(overrides: Sequence[str]) -> None:
    """Into the schema, which files and command line override and which every combination is composed from."""
    defaults = OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.from_dotlist(list(overrides)))
    ConfigStore.instance().store(name="schema", node=defaults)


def _require_one_combination(overrides: list[str]) -> None:
    for override in OverridesParser.create().parse_overrides(overrides):
        if override.is_sweep_override():
            raise ConfigError(
                f"{override.input_line} gives several values: add -m to run one trial for each of them"
            )


def _without(arguments: list[str], overrides: list[str]) -> list[str]:
    """The flags of a command line: what is left of it without its overrides."""
    left = list(overrides)
    flags = []
    for argument in arguments:
        if argument in left:
            left.remove(argument)
        else:
            flags.append(argument)
    return flags


def normalise_from(overrides: Sequence[str], loader: ConfigLoader) -> list[str]:
    """Overrides of a configuration file, with the options that its search path has."""
    return normalise(overrides, loader.get_group_options)


def _options(folders: Sequence[Path], group: str) -> list[str]:
    return [file.stem for folder in folders for file in sorted((folder / group).glob("*.yaml"))]


@contextmanager
def _arguments(arguments: list[str]) -> Iterator[None]:
    """Hydra reads the command line from sys.argv."""
    before = sys.argv
    sys.argv = [before[0], *arguments]
    try:
        yield
    finally:
        sys.argv = before


@contextmanager
def _full_errors() -> Iterator[None]:
    """Have Hydra raise instead of printing and leaving, so that one place decides how errors are told."""
    before = os.environ.get(FULL_ERROR)
    os.environ[FULL_ERROR] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[FULL_ERROR]
        else:
            os.environ[FULL_ERROR] = before
