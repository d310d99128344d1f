"""One trial at a time on a device, whichever sweep, outputs folder or user of the host measures on it."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from dmad_sweep.records.plan import PlannedDevice


def lock_file(device: PlannedDevice) -> Path:
    """In the host's folder for temporary files, which containers and some batch systems do not share."""
    return Path(tempfile.gettempdir(), "dmad_sweep", f"{device.uuid or 'cpu'}.lock")


@contextmanager
def hold(device: PlannedDevice, on_wait: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Hold the device's lock. `on_wait` is told in words when it is another's, or cannot be had at all.

    A lock goes with its process, however that ends. A trial without one is better than none.
    """
    file = lock_file(device)
    lock = FileLock(file, mode=0o666)
    try:
        with suppress(FileExistsError):
            file.parent.mkdir()
            file.parent.chmod(0o777)  # for other users' sweeps; sticky, Linux would refuse them our files
        try:
            lock.acquire(timeout=0)
        except Timeout:
            on_wait(f"waiting: another sweep measures on {device.name}")
            lock.acquire()
    except OSError as error:
        on_wait(f"{file} cannot be locked ({error.strerror}): others may measure on {device.name} as well")
    try:
        yield
    finally:
        lock.release()
