"""An MLflow client that no environment variable of the user's shell leads astray."""

import logging
import os
import sqlite3
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from dmad_sweep.errors import TrackingError
from dmad_sweep.records.files import OutputsFolder
from dmad_sweep.tracking.faults import told
from dmad_sweep.tracking.location import database_file, is_server, redacted

if TYPE_CHECKING:
    from mlflow import MlflowClient

CREATION_TIMEOUT_S = 120.0
BUSY_TIMEOUT_S = 60.0
"""How long a SQLite file that is locked as a whole is waited for at the start: as long as for writes."""


def connect(uri: str, outputs: OutputsFolder, *, create: bool) -> "MlflowClient":
    """Open the store at the resolved `uri`; a SQLite file that is not there is made only with `create`.

    Two processes that create one store at once crash each other (MLflow does not lock its migrations),
    hence the file lock.

    Raises:
        TrackingError: not there, unreachable, of another schema version, or not a store at all.
    """
    file = database_file(uri)
    if file is not None and not file.exists() and not create:
        raise TrackingError(
            f"there is no MLflow store at {redacted(uri)}; run a sweep first (python -m dmad_sweep -m "
            "batch=1,2,4), or name the store with outputs=FOLDER or tracking.uri=URI"
        )
    _set_environment(uri)
    with told(uri), _alone(uri, outputs, create):
        if file is not None and file.exists():
            _require_database(file)
        from mlflow import MlflowClient

        for name in ("alembic", "mlflow.store"):
            # what they say of a fault, with its traceback, `told` says in a line and without secrets
            logging.getLogger(name).setLevel(logging.CRITICAL)
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        client.search_experiments(max_results=1)
        return client


def _set_environment(uri: str) -> None:
    """Read by MLflow when it is imported and at each call."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    if is_server(uri):
        # By default MLflow asks an unreachable server for minutes; the store's own retries suffice.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")


def _alone(uri: str, outputs: OutputsFolder, create: bool) -> AbstractContextManager[object]:
    """One process at a time creates a database; a server looks after its own."""
    file = database_file(uri)
    if is_server(uri) or (file is None and not create):
        return nullcontext()
    lock = outputs.store_lock if file is None else file.with_name(f"{file.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(lock, timeout=CREATION_TIMEOUT_S)


def _require_database(file: Path) -> None:
    """MLflow retries for minutes, loudly, what SQLite refuses at once."""
    with closing(sqlite3.connect(file, timeout=BUSY_TIMEOUT_S)) as connection:
        connection.execute("PRAGMA schema_version")
