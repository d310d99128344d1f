"""What the measuring loop and a workload know of each other."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from dmad_sweep.workload.inventory import Inventory

Span = Callable[[str], AbstractContextManager[None]]
"""`with span("student.forward"): …` names the stage that the block belongs to.

Spans do not nest. A span that is left by an exception stays the current stage, so that whoever catches
the exception knows where it came from.
"""


class Workload(Protocol):
    """One training (or inference) step, cut into turns and stages."""

    @property
    def turns(self) -> Sequence[str]:
        """Names of the turns of a cycle, in order."""

    def load(self) -> None:
        """Build networks and optimizers on the device. The caller has opened the span `load`."""

    def fetch(self, cycle: int, turn: str) -> None:
        """Bring the samples of the coming turn to the device: the time that is data time."""

    def run(self, cycle: int, turn: str) -> None:
        """One turn: as many micro-steps as accumulation asks for, then its optimizer step."""

    def inventory(self) -> Inventory:
        """What is loaded; gradients and states appear with the first optimizer steps."""
