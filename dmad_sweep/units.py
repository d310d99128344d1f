"""Conversion between what files hold (bytes, seconds) and what a person reads (GiB, ms)."""

GIB = 1024**3
MIB = 1024**2


def bytes_to_gib(value: float) -> float:
    """Bytes to GiB (2**30 bytes)."""
    return value / GIB


def gib_to_bytes(value: float) -> int:
    """GiB (2**30 bytes) to whole bytes."""
    return round(value * GIB)


def seconds_to_ms(value: float) -> float:
    """Seconds to milliseconds."""
    return value * 1000.0
