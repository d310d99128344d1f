"""What sweeps did not live to write, or could not, gets into the store later."""

from collections.abc import Callable, Iterable

from filelock import FileLock, Timeout

from dmad_sweep.records.files import OutputsFolder, SweepFolder
from dmad_sweep.tracking.store import Store

Say = Callable[[str], None]


def mark_waiting(folder: SweepFolder, store: str) -> None:
    """Until `caught_up`, later sweeps with the same store look whether it lacks something of this one."""
    folder.waiting.write_text(store, encoding="utf-8")


def catch_up(outputs: OutputsFolder, store: Store, place: str, say: Say) -> None:
    """Import what waits for this store, whose `place` is told as `mark_waiting` was, and close dead sweeps.

    Asks the store once, and again for each sweep that waits: a start must not read every record.
    """
    waiting = {folder.name for folder in outputs.sweeps() if _waits_for(folder) == place}
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
                if folder.name in open_sweeps:
                    store.end_sweep(folder.name, "KILLED")
                    say(f"sweep {folder.name} was not closed: closed now, {imported} trials imported")
                elif imported:
                    if folder.name in store.open_sweeps():  # the store had not heard of it
                        store.end_sweep(folder.name, "FINISHED")
                    say(f"sweep {folder.name}: {imported} trials imported that the store lacked")
                folder.waiting.unlink(missing_ok=True)
                total += imported
        except Timeout:
            say(f"sweep {folder.name} is running: left alone")
    return total


def _waits_for(folder: SweepFolder) -> str | None:
    try:
        return folder.waiting.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
