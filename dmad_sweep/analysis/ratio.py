"""A quotient of two measurements, with what their spreads leave of its certainty."""

from dataclasses import dataclass

from dmad_sweep.records.row import Spread


@dataclass(frozen=True)
class Ratio:
    """A quotient of two measurements and half the range that their own ranges leave it."""

    value: float
    half_range: float = 0.0

    @classmethod
    def of(cls, here: Spread, there: Spread) -> "Ratio | None":
        """None where the divisor was 0 somewhere."""
        if there.low <= 0:
            return None
        lowest, highest = here.low / there.high, here.high / there.low
        return cls(here.median / there.median, (highest - lowest) / 2)
