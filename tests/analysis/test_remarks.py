"""What is said of a row beside its numbers."""

from dataclasses import replace

import pytest
from factories import make_record

from dmad_sweep.analysis.remarks import OF_A_ROW, remarks
from dmad_sweep.analysis.table import render
from dmad_sweep.records.record import Stranger
from dmad_sweep.records.row import Row, row_of
from dmad_sweep.units import GIB, MIB

BEFORE, DURING = Stranger(seen="before", pid=7), Stranger(seen="during")


def shared(used_before: int | None, *strangers: Stranger) -> Row:
    record = make_record()
    memory = replace(record.device_memory, used_before_bytes=used_before, strangers=list(strangers))
    return row_of(replace(record, device_memory=memory))


@pytest.mark.parametrize(
    ("used_before", "said"),
    [
        (3 * GIB, "up to 3.0 GiB"),
        (3 * GIB + MIB, "up to 3.1 GiB"),
        (4 * MIB, "up to 0.1 GiB"),
        (None, "some"),
    ],
)
def test_memory_of_others_is_told_to_a_tenth(used_before: int | None, said: str) -> None:
    [sentence] = remarks(shared(used_before, BEFORE))
    assert sentence.startswith(f"others used {said} of the device before the trial: ")


def test_a_shared_trial_stays_in_the_table_with_its_remarks() -> None:
    shown = render([shared(3 * GIB, BEFORE, DURING)], "markdown")
    assert "| 28.50 |" in shown
    assert "others used up to 3.0 GiB of the device" in shown
    assert OF_A_ROW["stranger"] in shown


def test_an_unknown_code_stands_for_itself() -> None:
    assert remarks(replace(shared(0), remarks=["{new}"])) == ["{new}"]
