"""What differs between two rows: "only the batch varied" holds where nothing else does."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dmad_sweep.analysis.grouping import COMPARABLE
from dmad_sweep.records.key import TrialKey
from dmad_sweep.records.row import Row

AXES: dict[str, Callable[[Row], str]] = {
    "batch": lambda row: str(row.batch),
    "resolution": lambda row: row.resolution,
    "accumulation": lambda row: str(row.accumulation),
    "precision": lambda row: row.precision,
    "checkpointing": lambda row: row.checkpointing,
    "adapter": lambda row: row.adapter,
    "attention": lambda row: row.attention,
    "optimizer": lambda row: row.optimizer,
    "ema": lambda row: row.ema,
}
"""Variables that have a column; the effective batch follows from two of them."""


def _of_key(read: Callable[[TrialKey], str | None]) -> Callable[[Row], str | None]:
    return lambda row: None if row.key is None else read(row.key)


BEHIND: dict[str, Callable[[Row], str | None]] = {
    "pretrained": lambda row: row.pretrained or "",
    "machine": _of_key(lambda key: key.device),
    "libraries": _of_key(lambda key: key.libraries),
    "environment": _of_key(lambda key: key.environment),
}
"""Variables that neither a column nor a table's heading shows, beside `Row.settings`."""


DEFAULT = "its default"


@dataclass(frozen=True)
class Difference:
    """A variable with its value in each of two rows."""

    variable: str
    here: str
    there: str


def differences(here: Row, there: Row) -> list[Difference]:
    """Every variable in which two rows differ; what is unknown of one of them is no difference."""
    readers = AXES | COMPARABLE | BEHIND
    found = [
        Difference(name, mine, its)
        for name, read in readers.items()
        if (mine := read(here)) is not None and (its := read(there)) is not None and mine != its
    ]
    if "device" in {difference.variable for difference in found}:
        found = [difference for difference in found if difference.variable != "machine"]
    return found + _of_settings(here, there, {difference.variable for difference in found})


def varied(rows: Sequence[Row]) -> list[str]:
    """Names of the variables in which any of the rows differ, those with columns first."""
    names = [d.variable for row in rows[1:] for d in differences(rows[0], row)]
    return sorted(dict.fromkeys(names), key=lambda name: name not in AXES)


def only_difference(here: Row, there: Row) -> str | None:
    """The variable in which two rows differ where it is exactly one, else None."""
    found = differences(here, there)
    return found[0].variable if len(found) == 1 else None


def unshown(rows: Iterable[Row]) -> dict[str, list[Difference]]:
    """By trial id, in which variables without a column a row differs from what most of the rows have.

    A table that shows these rows must name them: they are second variables beside its columns.
    """
    rows = list(rows)
    if not rows:
        return {}
    usual = _most_common(rows)
    return {row.trial_id: found for row in rows if (found := _behind(row, usual))}


def _most_common(rows: Sequence[Row]) -> Row:
    """A row whose values without a column the most rows share; the first of several."""
    alike: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        values = (*(read(row) for read in BEHIND.values()), *sorted(row.settings.items()))
        alike.setdefault(values, []).append(row)
    return max(alike.values(), key=len)[0]


def _behind(here: Row, there: Row) -> list[Difference]:
    return [d for d in differences(here, there) if d.variable not in AXES and d.variable not in COMPARABLE]


def _of_settings(here: Row, there: Row, told: set[str]) -> list[Difference]:
    """Settings that differ, unless another name of their group says so: `fp32` means other weights."""
    names = dict.fromkeys([*here.settings, *there.settings])
    return [
        Difference(name, here.settings.get(name, DEFAULT), there.settings.get(name, DEFAULT))
        for name in names
        if here.settings.get(name) != there.settings.get(name) and name.partition(".")[0] not in told
    ]
