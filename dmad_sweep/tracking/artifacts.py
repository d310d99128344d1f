"""Files that become artifacts of a run."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOG_TAIL_BYTES = 2**20


@contextmanager
def capped(file: Path, limit: int = LOG_TAIL_BYTES) -> Iterator[Path]:
    """`file` itself, or a file of the same name with its last `limit` bytes, gone with the context."""
    size = file.stat().st_size
    if size <= limit:
        yield file
        return
    with tempfile.TemporaryDirectory() as temporary, file.open("rb") as whole:
        whole.seek(size - limit)
        tail = Path(temporary) / file.name
        tail.write_bytes(f"… the last of {size} bytes\n".encode() + whole.read(limit))
        yield tail
