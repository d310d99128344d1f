"""What a peak is made of, from allocator histories written by hand."""

from typing import Any

import pytest

from dmad_sweep.child.anatomy import BLOCK, MARK, History, instant_of_peak

UNIT = 2**20
KINDS = {1: "weights", 2: "states"}


def alloc(address: int, size: int) -> dict[str, Any]:
    return {"action": "alloc", "addr": address, "size": size}


def free(address: int) -> list[dict[str, Any]]:
    return [{"action": action, "addr": address, "size": 0} for action in ("free_requested", "free_completed")]


def mark() -> list[dict[str, Any]]:
    return [alloc(99, MARK), *free(99)]


def history(events: list[dict[str, Any]], *gradients: set[int]) -> History:
    return History(
        live_before={1: 4 * UNIT, 2: 8 * UNIT, 3: UNIT},
        reserved_before=100 * UNIT,
        events=events,
        gradients=list(gradients),
    )


def test_a_forward_peak_has_no_gradients_though_their_addresses_are_in_use() -> None:
    events = [
        alloc(10, 6 * UNIT),
        alloc(11, 6 * UNIT),  # the peak
        *free(10),
        alloc(10, 2 * UNIT),  # a gradient, where an activation was
        *free(11),
        *mark(),
        *free(10),
    ]
    instant = instant_of_peak(history(events, {10}), KINDS)
    assert instant.bytes_by_kind == {"weights": 4 * UNIT, "states": 8 * UNIT, "activations": 13 * UNIT}


def test_a_peak_in_backward_holds_the_gradients_made_so_far() -> None:
    events = [
        alloc(10, 6 * UNIT),
        alloc(20, 2 * UNIT),  # first gradient
        alloc(11, 6 * UNIT),  # the peak
        *free(11),
        *free(10),
        alloc(21, 2 * UNIT),  # second gradient, after the peak
        *mark(),
        *free(20),
        *free(21),
    ]
    instant = instant_of_peak(history(events, {20, 21}), KINDS)
    assert instant.bytes_by_kind["gradients"] == 2 * UNIT
    assert instant.bytes_by_kind["activations"] == (6 + 6 + 1) * UNIT


def test_an_optimizer_peak_after_the_mark_holds_all_gradients_of_its_own_turn() -> None:
    events = [
        alloc(20, 2 * UNIT),
        *mark(),
        *free(20),
        alloc(20, 3 * UNIT),  # another optimizer's gradient at the same address
        *mark(),
        alloc(12, 30 * UNIT),  # the peak: temporaries of the second optimizer
        *free(12),
        *free(20),
    ]
    instant = instant_of_peak(history(events, {20}, {20}), KINDS)
    assert instant.bytes_by_kind["gradients"] == 3 * UNIT


def test_requests_are_counted_as_asked_and_compared_as_rounded() -> None:
    events = [alloc(10, 2 * BLOCK), *free(10), *[alloc(30 + i, 1) for i in range(3)]]
    instant = instant_of_peak(history(events), KINDS)
    assert instant.bytes_by_kind["activations"] == UNIT + 3


def test_reserved_is_read_at_the_same_instant() -> None:
    def segment(action: str, size: int) -> dict[str, Any]:
        return {"action": action, "addr": 7, "size": size * UNIT}

    events = [
        segment("segment_alloc", 50),
        alloc(10, 40 * UNIT),  # the peak
        *free(10),
        segment("segment_free", 50),
        segment("segment_map", 10),
        alloc(11, 5 * UNIT),
    ]
    assert instant_of_peak(history(events), KINDS).reserved_bytes == 150 * UNIT


def test_a_cycle_that_never_rises_peaks_at_its_start() -> None:
    instant = instant_of_peak(history([*free(3), alloc(10, UNIT)]), KINDS)
    assert instant.bytes_by_kind == {"weights": 4 * UNIT, "states": 8 * UNIT, "activations": UNIT}


def test_a_mark_without_a_note_is_a_fault() -> None:
    with pytest.raises(StopIteration):
        instant_of_peak(history(mark()), KINDS)
