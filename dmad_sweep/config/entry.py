"""How every entry point meets Hydra: one configuration tree, one way in which errors are told."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from dmad_sweep.config import schema, source
from dmad_sweep.config.axes import normalise, repr_quoted
from dmad_sweep.config.documentation import leaves
from dmad_sweep.config.project import conf_folder
from dmad_sweep.config.schema import Config
from dmad_sweep.errors import ConfigError, DmadSweepError
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
    `extra_overrides` are added for keys that the command line does not give. Errors that a person can act
    on become a line or two on standard error and an exit code; a fault of the program keeps its traceback.
    """
    arguments = list(argv)
    full_error = os.environ.get(FULL_ERROR) == "1"
    try:
        _run(task, arguments, config_name, extra_overrides, sweeps)
    except ConfigError as error:
        if full_error:
            raise
        return _refuse(str(error), REFUSED)
    except DmadSweepError as error:
        if full_error:
            raise
        return _refuse(str(error), REFUSED_BY_HYDRA)
    except OverrideParseException as error:
        if full_error:
            raise
        return _refuse(_ungrammatical(error.override), REFUSED_BY_HYDRA)
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        if isinstance(error.__cause__, ConfigError):
            return _refuse(str(error.__cause__), REFUSED)
        if full_error:
            raise
        return _refuse(_condense(error, arguments), REFUSED_BY_HYDRA)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    return 0


def settings_of(config: DictConfig) -> Config:
    """The composed configuration as checked dataclasses. Raises ConfigError, naming the key."""
    known = {key: config._get_node(key) for key in config if key != "hydra"}
    try:
        typed = OmegaConf.merge(OmegaConf.structured(Config), known)
        settings = OmegaConf.to_object(typed)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {_first_line(error)}") from None
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
    parsed = get_args_parser().parse_args(arguments)
    given = {override.partition("=")[0].lstrip("+") for override in parsed.overrides}
    extra = [override for override in extra_overrides if override.partition("=")[0] not in given]
    folders = [Path(parsed.config_dir), conf] if parsed.config_dir else [conf]
    flags = _without(arguments, parsed.overrides)
    overrides = normalise(parsed.overrides, lambda group: _options(folders, group))
    only_shows = parsed.shell_completion or parsed.hydra_help or parsed.help or parsed.cfg or parsed.info
    if not only_shows:
        overrides += extra
        if sweeps and not parsed.multirun:
            _require_one_combination(overrides)
            flags.append("--multirun")
    composed: list[DictConfig] = []
    # A task that raises inside Hydra's own run gets a line of Hydra's printed before it.
    decorated = hydra.main(version_base="1.3", config_path=str(conf), config_name=config_name)(
        task if sweeps else composed.append
    )
    with _arguments([*flags, *overrides]), _full_errors():
        decorated()
    for config in composed:
        task(config)


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


def _refuse(message: str, code: int) -> int:
    print(f"dmad_sweep: {message}", file=sys.stderr)
    return code


def _ungrammatical(override: str) -> str:
    key, equals, value = override.partition("=")
    if not equals:
        return f"{override} cannot be read: give overrides as key=value"
    quoted = repr_quoted(value)
    return f'{override} cannot be read; characters of Hydra\'s grammar need quotes: "{key}={quoted}"'


def _condense(error: Exception, arguments: Sequence[str]) -> str:
    """Hydra's message of several lines as one or two, with the key that may have been meant."""
    text = str(error)
    if isinstance(error.__cause__, OmegaConfBaseException):
        text = f"{text}\n{error.__cause__}"
    lines = [line.strip() for line in text.partition("Config search path:")[0].splitlines() if line.strip()]
    noise = ("full_key:", "object_type=", "reference_type=", "To append to your config use")
    kept = [line for line in lines if not line.startswith(noise)] or [type(error).__name__]
    if isinstance(error, YAMLError):
        return " ".join(kept)
    message = kept[0].removeprefix("In 'config': ").rstrip(".:")
    if any(line.startswith("Available options") for line in kept):
        start = next(i for i, line in enumerate(kept) if line.startswith("Available options"))
        message += f"; choose one of {', '.join(kept[start + 1 :])}"
    elif len(kept) > 1:
        message += f": {kept[1]}"
    return message + _suggestion(message, arguments)


def _suggestion(message: str, arguments: Sequence[str]) -> str:
    keys = [key for key, _, _ in leaves(Config)]
    names = sorted({*keys, *(key.partition(".")[0] for key in keys)})
    for argument in arguments:
        key = argument.partition("=")[0].lstrip("+~")
        if f"'{key}'" in message and key not in names and (close := get_close_matches(key, names, 1)):
            return f". Did you mean {close[0]}?"
    return ""


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
