"""The numeric axes: any size is an option of `batch`, `accumulation` and `resolution`.

Hydra wants the options of a group to be strings and refuses the numbers that its own grammar makes of
`batch=1,2,4`. So overrides of these groups are parsed by Hydra's grammar, numbers are checked here, and all
is written anew with every value quoted. Names are left to Hydra, which alone knows every folder they may
be in.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override, QuotedString
from hydra.errors import HydraException

from dmad_sweep.errors import ConfigError
from dmad_sweep.records.settings import Accumulation, Batch, Resolution, refuse

DIGITS = re.compile(r"[1-9][0-9]{0,8}")
PLAIN_VALUE = re.compile(r"[\w/.:@+-]+", re.ASCII)
"""What Hydra's grammar takes as it stands."""

SIZE = re.compile(r"([1-9][0-9]{0,5})(?:x([1-9][0-9]{0,5}))?")


@dataclass(frozen=True)
class Axis:
    """A group whose options are numbers. `parse` makes the node of an option or returns None."""

    group: str
    allowed: str
    parse: Callable[[str], dict[str, int] | None]


def _batch(option: str) -> dict[str, int] | None:
    if not DIGITS.fullmatch(option):
        return None
    return {"size": Batch(int(option)).size}


def _accumulation(option: str) -> dict[str, int] | None:
    if not DIGITS.fullmatch(option):
        return None
    return {"steps": Accumulation(int(option)).steps}


def _resolution(option: str) -> dict[str, int] | None:
    match = SIZE.fullmatch(option)
    if not match:
        return None
    size = Resolution(height=int(match[1]), width=int(match[2] or match[1]))
    return {"height": size.height, "width": size.width}


AXES = {
    axis.group: axis
    for axis in (
        Axis("batch", "give a positive integer, for instance batch=3", _batch),
        Axis("accumulation", "give a positive integer, for instance accumulation=4", _accumulation),
        Axis(
            "resolution",
            "give a size in pixels, 640, or height x width, 512x768, each a multiple of 8",
            _resolution,
        ),
    )
}


def looks_numeric(option: str) -> bool:
    """Whether an option of an axis is meant as a number, well-formed or not."""
    return bool(re.match(r"[-+]?\d", option))


def refused(group: str, shown: str, names: Sequence[str] = ()) -> ConfigError:
    """The refusal of a value of an axis; `names` are the files that could have been chosen instead."""
    instead = f", or choose {', '.join(names)}" if names else ""
    return refuse(group, shown, AXES[group].allowed + instead)


def node_of(group: str, option: str) -> dict[str, int]:
    """The configuration node of a numeric option. Raises ConfigError."""
    try:
        node = AXES[group].parse(option)
    except ConfigError as error:
        raise refuse(group, option, str(error).partition(": ")[2]) from None
    if node is None:
        raise refused(group, option)
    return node


Options = Callable[[str], Iterable[str]]
"""Names of a group's files."""


def normalise(overrides: Sequence[str], options: Options) -> list[str]:
    """Overrides as Hydra accepts them; those that it accepts anyway are left as they are.

    Raises:
        ConfigError: a value that no axis takes, with the allowed ones.
    """
    return [_normalise(override, options) for override in overrides]


def _normalise(text: str, options: Options) -> str:
    key = text.partition("=")[0]
    group = key.lstrip("+~").partition("@")[0]
    if group in AXES and not key.startswith("~"):
        return _written(key, _options_of_axis(group, text, options))
    if group in AXES or options(group):
        return _quoted_where_needed(key, text, options)
    return text


def _options_of_axis(group: str, text: str, options: Options) -> list[str]:
    try:
        values = _values(OverridesParser.create().parse_override(text), options)
    except HydraException:  # not in the grammar, or a sweep that cannot be enumerated
        raise ConfigError(f"{text} is not allowed: {AXES[group].allowed}") from None
    return [_option(group, value, options) for value in values]


def _quoted_where_needed(key: str, text: str, options: Options) -> str:
    """An override of another group: `precision=32` is told like any other option that does not exist."""
    try:
        values = _values(OverridesParser.create().parse_override(text), options)
    except HydraException:  # Hydra says why
        return text
    if text == key or all(_is_taken_by_hydra(value) for value in values):
        return text
    return _written(key, [option_text(value) for value in values])


def _is_taken_by_hydra(value: Any) -> bool:
    """Groups take names and lists of names; a dictionary is an override of the group's keys."""
    if isinstance(value, list):
        return all(isinstance(item, (str, QuotedString)) for item in value)
    return isinstance(value, (str, QuotedString, dict))


def _values(override: Override, options: Options) -> list[Any]:
    value = override.value()
    if isinstance(value, Glob):
        assert override.key_or_group is not None
        names = options(override.key_or_group)
        return [
            name
            for name in sorted(names)
            if _matches(name, value.include) and not _matches(name, value.exclude)
        ]
    if override.is_sweep_override():
        return list(override.sweep_iterator())
    return [value]


def _matches(name: str, patterns: Iterable[str | QuotedString]) -> bool:
    texts = (pattern.text if isinstance(pattern, QuotedString) else pattern for pattern in patterns)
    return any(fnmatchcase(name, text) for text in texts)


def _option(group: str, value: Any, options: Options) -> str:
    text = option_text(value)
    if isinstance(value, (bool, float, list, dict, type(None))) or not text:
        raise refused(group, text)
    if looks_numeric(text) and text not in options(group):
        node_of(group, text)
    return text


def option_text(value: Any) -> str:
    """A value of Hydra's grammar or of YAML as a person writes it."""
    if isinstance(value, QuotedString):
        return value.text
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _written(key: str, options: Iterable[str]) -> str:
    return f"{key}={','.join(repr_quoted(option) for option in options)}"


def as_override(key: str, value: object) -> str:
    """`key=value` for a command line, the value quoted where Hydra's grammar would read it otherwise."""
    text = str(value)
    return f"{key}={text if PLAIN_VALUE.fullmatch(text) else repr_quoted(text)}"


def repr_quoted(option: str) -> str:
    """An option as a quoted string of Hydra's grammar."""
    escaped = option.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
