"""An MLflow client that no environment variable of the user's shell leads astray, with retries."""

import functools
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from filelock import FileLock
from tenacity import retry, retry_if_exception, stop_after_delay, wait_random_exponential

from dmad_sweep.errors import TrackingError
from dmad_sweep.records.files import OutputsFolder
from dmad_sweep.tracking.location import is_server, redacted

if TYPE_CHECKING:
    from mlflow import MlflowClient

P = ParamSpec("P")
R = TypeVar("R")

PASSING = ("database is locked", "QueuePool limit", "Connection refused", "Max retries exceeded", "timed out")
"""Texts of faults that pass by themselves."""

RETRY_FOR_S = 60.0


def connect(uri: str, outputs: OutputsFolder) -> "MlflowClient":
    """Open the store, creating it first when it is a file.

    Two processes that create one SQLite store at once crash each other (MLflow does not lock its
    migrations), hence the file lock.

    Raises:
        TrackingError: unreachable, of an older schema, or not a store at all.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    if is_server(uri):
        # By default MLflow asks an unreachable server for minutes; the retries here suffice.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    from mlflow import MlflowClient

    for name in ("alembic", "mlflow.store.db.utils", "mlflow.store"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        if is_server(uri):
            client = MlflowClient(tracking_uri=uri)
            client.search_experiments(max_results=1)
            return client
        outputs.path.mkdir(parents=True, exist_ok=True)
        with FileLock(outputs.store_lock):
            client = MlflowClient(tracking_uri=uri)
            client.search_experiments(max_results=1)
            return client
    except Exception as error:
        raise explained(error, uri) from error


def patiently(function: Callable[P, R]) -> Callable[P, R]:
    """Retry a call for a minute while the store is locked, busy or away; then raise TrackingError."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return attempt(*args, **kwargs)
        except TrackingError:
            raise
        except Exception as error:
            raise explained(error, "the MLflow store") from error

    attempt = retry(
        retry=retry_if_exception(_is_passing),
        wait=wait_random_exponential(multiplier=0.2, max=5),
        stop=stop_after_delay(RETRY_FOR_S),
        reraise=True,
    )(function)
    return call


def explained(error: BaseException, uri: str) -> TrackingError:
    """What went wrong with a store and what to do about it."""
    text = redacted(str(error)).strip()
    where = redacted(uri)
    if "Connection refused" in text or "Max retries exceeded" in text or "Failed to establish" in text:
        advice = "no MLflow server answers there; start it, or leave tracking.uri out to use a local store"
    elif "out-of-date database schema" in text:
        advice = f"an older MLflow wrote it; upgrade it with: mlflow db upgrade {where}"
    elif "database is locked" in text:
        advice = "other processes keep it locked; try again, or use a server (tracking=server)"
    else:
        advice = text.partition("\n")[0]
    return TrackingError(f"MLflow at {where} cannot be used: {advice}")


def _is_passing(error: BaseException) -> bool:
    return any(text in str(error) for text in PASSING)
