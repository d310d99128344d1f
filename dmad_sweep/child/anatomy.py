"""What a peak is made of, from the caching allocator's own history of one cycle.

The history names every allocation by address and size and costs the host some microseconds each, so it is
taken in a cycle of its own, after the timed ones. Replaying it finds the instant of the highest allocation
and the blocks that were live then; weights and states are known by their addresses beforehand, gradients by
the addresses that they have when their optimizer is about to step.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dmad_sweep.records.result import Anatomy
from dmad_sweep.workload.inventory import Inventory

BLOCK = 512
"""Bytes to whose multiple the allocator rounds each request (kMinBlockSize of CUDACachingAllocator.h)."""

MAX_EVENTS = 4_000_000
"""Of a cycle. Beyond, the oldest are lost and nothing can be told."""

MAX_EVENTS_WITH_STACKS = 400_000
"""An event with its stack takes some KB of host memory."""

MARK = 7919
"""Bytes of an allocation that marks a place in the history; a prime, which no tensor of a network has."""

SEGMENT_SIGNS = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


@dataclass
class History:
    """Allocator events of a cycle, from a known state on; gradients were noted where MARK bytes came."""

    live_before: dict[int, int]
    """Bytes requested for each live block, by address."""
    reserved_before: int
    events: list[dict[str, Any]]
    gradients: list[set[int]] = field(default_factory=list)
    """Addresses of the gradients that existed at each mark, in order."""


@dataclass(frozen=True)
class Instant:
    """The highest allocation of a history: live bytes by kind, and what the allocator held."""

    bytes_by_kind: dict[str, int]
    reserved_bytes: int


def instant_of_peak(history: History, kinds: dict[int, str]) -> Instant:
    """Replay a history; `kinds` names the blocks that were known before, by address."""
    index, gradients, reserved = _find_peak(history)
    live = {address: (-1, size) for address, size in history.live_before.items()}
    for number, event in enumerate(history.events[: index + 1]):
        if event["action"] == "alloc":
            live[event["addr"]] = (number, event["size"])
        elif event["action"] == "free_requested":
            live.pop(event["addr"], None)
    total: Counter[str] = Counter()
    for address, (number, size) in live.items():
        if number == -1:
            kind = kinds.get(address, "activations")
        else:
            kind = "gradients" if number in gradients else "activations"
        total[kind] += size
    return Instant(dict(total), reserved)


def _find_peak(history: History) -> tuple[int, set[int], int]:
    """Index of the event that reached the peak, the events that allocated gradients, bytes reserved then."""
    allocated_by = dict.fromkeys(history.live_before, -1)
    size_of = dict(history.live_before)
    current = sum(map(_rounded, size_of.values()))
    highest, index = current, -1
    reserved = reserved_then = history.reserved_before
    marks = iter(history.gradients)
    gradients: set[int] = set()
    for number, event in enumerate(history.events):
        action = event["action"]
        if action == "alloc":
            allocated_by[event["addr"]], size_of[event["addr"]] = number, event["size"]
            current += _rounded(event["size"])
            if event["size"] == MARK:
                gradients |= {allocated_by[address] for address in next(marks) if address in allocated_by}
        elif action == "free_requested" and event["addr"] in size_of:
            allocated_by.pop(event["addr"])
            current -= _rounded(size_of.pop(event["addr"]))
        elif action in SEGMENT_SIGNS:
            reserved += SEGMENT_SIGNS[action] * event["size"]
        if current > highest:
            highest, index, reserved_then = current, number, reserved
    return index, gradients - {-1}, reserved_then


class Recording:
    """Records the allocator's history while it is entered."""

    def __init__(self, device: torch.device, inventory: Inventory, *, stacks: bool) -> None:
        self._device, self._inventory, self._stacks = device, inventory, stacks
        self._kinds: dict[int, str] = {}
        self._gradients: list[set[int]] = []

    def __enter__(self) -> "Recording":
        self._kinds = {
            **dict.fromkeys(_addresses(self._inventory.weights()), "weights"),
            **dict.fromkeys(_addresses(self._inventory.states()), "states"),
        }
        self._live_before = {
            block["address"]: block["requested_size"]
            for segment in torch.cuda.memory._snapshot()["segments"]
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        }
        self._reserved_before = torch.cuda.memory_reserved(self._device)
        record_history(stacks=self._stacks)
        return self

    def __exit__(self, *_: object) -> None:
        stop_history()

    def entering(self, stage: str) -> None:
        """Called before each stage: gradients are whole before their optimizer steps."""
        if stage.endswith(".optimizer"):
            self._gradients.append(_addresses(self._inventory.gradients()))
            torch.empty(MARK, dtype=torch.uint8, device=self._device)  # freed at once

    def anatomy(self, stage: str, context_bytes: int, *, allocated_bytes: int) -> Anatomy:
        """What was live at the peak of the history, which the allocator counted as `allocated_bytes`."""
        snapshot = torch.cuda.memory._snapshot()
        events = snapshot["device_traces"][self._device.index or 0]
        most = _max_events(self._stacks)
        if len(events) >= most:
            raise RuntimeError(f"the cycle has more than {most} allocator events")
        instant = instant_of_peak(
            History(self._live_before, self._reserved_before, events, self._gradients), self._kinds
        )
        kinds = instant.bytes_by_kind
        return Anatomy(
            stage=stage,
            weight_bytes=kinds.get("weights", 0),
            gradient_bytes=kinds.get("gradients", 0),
            state_bytes=kinds.get("states", 0),
            activation_bytes=kinds.get("activations", 0),
            allocated_bytes=allocated_bytes,
            reserved_bytes=instant.reserved_bytes,
            context_bytes=context_bytes,
        )


def record_history(*, stacks: bool) -> None:
    """Start the allocator's history afresh, with Python stacks where a person is to look at it."""
    stop_history()
    torch.cuda.memory._record_memory_history(
        "all", context="all" if stacks else None, stacks="python", max_entries=_max_events(stacks)
    )


def stop_history() -> None:
    torch.cuda.memory._record_memory_history(None)


def _max_events(stacks: bool) -> int:
    return MAX_EVENTS_WITH_STACKS if stacks else MAX_EVENTS


def _addresses(tensors: Iterable[Tensor]) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}


def _rounded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
