"""The numeric axes: any size is an option of `batch`, `accumulation` and `resolution`.

Hydra wants the options of a group to be strings and refuses the numbers that its own grammar makes of
`batch=1,2,4`. So overrides of these groups are parsed by Hydra's grammar, checked here, and written anew
with every value quoted.
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
from dmad_sweep.records.settings import Accumulation, Batch, Resolution

DIGITS = re.compile(r"[1-9][0-9]{0,8}")
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


def node_of(group: str, option: str) -> dict[str, int]:
    """The configuration node of a numeric option. Raises ConfigError."""
    axis = AXES[group]
    try:
        node = axis.parse(option)
    except ConfigError as error:
        raise ConfigError(f"{group}={option} is not allowed: {str(error).partition(': ')[2]}") from None
    if node is None:
        raise ConfigError(f"{group}={option} is not allowed: {axis.allowed}")
    return node


Options = Callable[[str], Iterable[str]]
"""Names of a group's files."""


def normalise(overrides: Sequence[str], options: Options) -> list[str]:
    """Overrides as Hydra accepts them; those of other keys are left as they are.

    Raises:
        ConfigError: a value that no axis takes, with the allowed ones.
    """
    return [_normalise(override, options) for override in overrides]


def _normalise(text: str, options: Options) -> str:
    key = text.partition("=")[0]
    group = key.lstrip("+~").partition("@")[0]
    if group not in AXES or key.startswith("~"):
        return text
    try:
        values = _values(OverridesParser.create().parse_override(text), options)
    except HydraException:  # not in the grammar, or a sweep that cannot be enumerated
        raise ConfigError(f"{text} is not allowed: {AXES[group].allowed}") from None
    values = [_option(group, value, options) for value in values]
    return f"{key}={','.join(repr_quoted(value) for value in values)}"


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
    text = value.text if isinstance(value, QuotedString) else str(value)
    wrong_kind = isinstance(value, (bool, float, list, dict, type(None))) or not text
    if not wrong_kind and not looks_numeric(text) and text in set(options(group)):
        return text
    shown = "null" if value is None else text
    if wrong_kind or not looks_numeric(text):
        raise ConfigError(f"{group}={shown} is not allowed: {AXES[group].allowed}")
    node_of(group, text)
    return text


def repr_quoted(option: str) -> str:
    """An option as a quoted string of Hydra's grammar."""
    escaped = option.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
