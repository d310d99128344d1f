"""Errors of Hydra, OmegaConf and YAML in a line or two, with the key that may have been meant."""

import re
from difflib import get_close_matches
from traceback import walk_tb

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from dmad_sweep.config.axes import AXES, looks_numeric, refused, repr_quoted
from dmad_sweep.config.documentation import leaves
from dmad_sweep.config.schema import Config
from dmad_sweep.errors import DmadSweepError

NOISE = ("full_key:", "object_type=", "reference_type=", "To append to your config use")
UNKNOWN = re.compile(r"Could not (?:override|delete|find) '([\w.-]+)")


def in_our_words(error: Exception) -> DmadSweepError | None:
    """The error as one of ours, a ConfigError if a value is refused; None for a fault of the program."""
    foreign = isinstance(error, (HydraException, OmegaConfBaseException))
    for one in (error, error.__cause__ if foreign else None):
        if isinstance(one, DmadSweepError):
            return one
    if isinstance(error, OverrideParseException):
        return DmadSweepError(_ungrammatical(error.override))
    if isinstance(error, MissingConfigException):
        return _missing(error)
    if isinstance(error, YAMLError):
        return DmadSweepError(" ".join(_lines(str(error))))
    if foreign or _is_a_refusal_of_hydra(error):
        return DmadSweepError(_condensed(error))
    return None


def suggestion(key: str) -> str:
    """What may have been meant by a key or group that does not exist."""
    keys = [name for name, _, _ in leaves(Config)]
    names = sorted({*keys, *(name.partition(".")[0] for name in keys)})
    close = [] if key in names else get_close_matches(key, names, 1)
    return f". Did you mean {close[0]}?" if close else ""


def _ungrammatical(override: str) -> str:
    key, equals, value = override.partition("=")
    if not equals:
        return f"{override} cannot be read: give overrides as key=value"
    quoted = repr_quoted(value)
    return f'{override} cannot be read; characters of Hydra\'s grammar need quotes: "{key}={quoted}"'


def _missing(error: MissingConfigException) -> DmadSweepError:
    """An option that no folder of the search path has."""
    group, _, option = (error.missing_cfg_file or "").partition("/")
    options = error.options or ()
    if group in AXES:
        return refused(group, option, [name for name in options if not looks_numeric(name)])
    if not options:
        return DmadSweepError(_condensed(error))
    return DmadSweepError(f"{_head(_lines(str(error)))}; choose one of {', '.join(options)}")


def _condensed(error: Exception) -> str:
    """Hydra's first line, and the reason where it gives one."""
    text = str(error)
    if isinstance(error.__cause__, OmegaConfBaseException):
        text = f"{text}\n{error.__cause__}"
    lines = _lines(text.partition("Config search path:")[0])
    full_key = next((line.partition(":")[2].strip() for line in lines if line.startswith("full_key:")), "")
    kept = [line for line in lines if not line.startswith(NOISE)] or [type(error).__name__]
    # Hydra names the class of the error where the key is of use.
    head = re.sub(r"\w+ raised while composing config$", full_key, _head(kept)).rstrip(": ")
    message = ": ".join([head, *kept[1:2]])
    unknown = UNKNOWN.search(message)
    if "Did you mean" in message or not (unknown or full_key):
        return message
    return message + suggestion(unknown[1] if unknown else full_key)


def _head(lines: list[str]) -> str:
    return lines[0].removeprefix("In 'config': ").rstrip(".:")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _is_a_refusal_of_hydra(error: Exception) -> bool:
    """Hydra raises a bare ValueError for flags that exclude each other and for malformed defaults lists."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    module = frames[-1].f_globals.get("__name__", "") if frames else ""
    return isinstance(error, ValueError) and module.startswith("hydra.")
