"""What sweeps did not live to write, or could not, gets into the store later."""

from collections.abc import Callable, Iterable

from filelock import FileLock, Timeout

from dmad_sweep.errors import OutputsError
from dmad_sweep.records.files import OutputsFolder, SweepFolder
from dmad_sweep.tracking.store import Store, SweepStatus

Say = Callable[[str], None]

LONGEST_MARK = 2**16


ENDED_AS: tuple[SweepStatus, ...] = ("FINISHED", "FAILED", "KILLED")


def mark_waiting(folder: SweepFolder, store: str, ended_as: SweepStatus | None = None) -> None:
    """Until the mark is removed, later sweeps with the same store look whether it lacks any of this one.

    `ended_as` is what the sweep's run is closed with then; one that is marked without it was killed.

    Raises:
        OutputsError: the folder cannot be written.
    """
    try:
        folder.waiting.write_text(f"{store}\n{ended_as or ''}", encoding="utf-8")
    except OSError as error:
        raise OutputsError(folder.path, error) from error


def catch_up(outputs: OutputsFolder, store: Store, place: str, say: Say) -> None:
    """Import what waits for this store, whose `place` is told as `mark_waiting` was, and close dead sweeps.

    Asks the store once, and again for each sweep that waits: a start must not read every record.
    """
    waiting = {folder.name for folder in outputs.sweeps() if _mark(folder)[0] == place}
    open_sweeps = set(store.open_sweeps())
    folders = [outputs.sweep(name) for name in sorted(waiting | open_sweeps)]
    # a sweep without a folder is of another outputs folder or host: nothing can be told of it here
    _import([folder for folder in folders if folder.path.is_dir()], store, open_sweeps, say)


def import_all(outputs: OutputsFolder, store: Store, say: Say) -> int:
    """Import every record of every sweep that the store lacks, and close dead sweeps; how many trials."""
    imported = _import(outputs.sweeps(), store, set(store.open_sweeps()), say)
    say(f"{imported} trials imported from {outputs.path}")
    return imported


def _import(folders: Iterable[SweepFolder], store: Store, open_sweeps: set[str], say: Say) -> int:
    total = 0
    for folder in folders:
        try:
            with FileLock(folder.running, timeout=0):
                imported = store.import_records(folder)
                ended_as = _mark(folder)[1]
                if folder.name in open_sweeps:
                    store.end_sweep(folder.name, ended_as or "KILLED")
                    say(f"sweep {folder.name} was not closed: closed now, {imported} trials imported")
                elif imported:
                    if folder.name in store.open_sweeps():  # the store had not heard of it
                        store.end_sweep(folder.name, ended_as or "FINISHED")
                    say(f"sweep {folder.name}: {imported} trials imported that the store lacked")
                folder.waiting.unlink(missing_ok=True)
                total += imported
        except Timeout:
            say(f"sweep {folder.name} is running: left alone")
        except OSError as error:
            say(f"sweep {folder.name}: left alone, its folder cannot be written ({error.strerror})")
    return total


def _mark(folder: SweepFolder) -> tuple[str | None, SweepStatus | None]:
    """The store that the sweep waits for, and how it ended, as far as its folder tells."""
    try:
        with folder.waiting.open(encoding="utf-8", errors="replace") as stream:
            place, *last = stream.read(LONGEST_MARK).rsplit("\n", 1)
    except OSError:
        return None, None
    return place, next((status for status in ENDED_AS if [status] == last), None)
