"""What goes wrong with a store: what passes by itself is tried again, the rest is told with advice."""

import functools
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from dmad_sweep.errors import TrackingError
from dmad_sweep.tracking.location import redacted

PASSING = (
    "database is locked",
    "QueuePool limit",
    "Connection refused",
    "Connection aborted",
    "Connection reset",
    "Max retries exceeded",
    "timed out",
    "error code 502",
    "error code 503",
    "error code 504",
)
"""Texts of faults that pass by themselves."""

RETRY_FOR_S = 60.0

STORE_LIBRARIES = {"mlflow", "sqlalchemy", "alembic", "sqlite3", "urllib3"}

ADVICE = {
    ("Connection refused", "Max retries exceeded", "Failed to establish", "Name or service not known"): (
        "no MLflow server answers there; start it, or leave tracking.uri out to use a local store"
    ),
    ("out-of-date database schema",): (
        "another version of MLflow wrote it; if a newer one, upgrade MLflow; if an older one, make a backup "
        "and run: mlflow db upgrade {uri}"
    ),
    ("database is locked",): ("other processes keep it locked; try again, or use a server (tracking=server)"),
    ("file is not a database",): (
        "file is not a database; move it away, or choose another folder with outputs=FOLDER"
    ),
    ("error code 401", "error code 403"): (
        "the server refuses access; check MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD or "
        "MLFLOW_TRACKING_TOKEN, and the server's --allowed-hosts"
    ),
    ("could not be acquired",): "another process has been creating it for minutes; end that one, try again",
}
"""Texts of a fault and what to do about it."""


class Located(Protocol):
    """What has the URI of a store."""

    @property
    def uri(self) -> str: ...

    @property
    def patience_s(self) -> float: ...


S = TypeVar("S", bound=Located)
P = ParamSpec("P")
R = TypeVar("R")


def patiently(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Repeat a method while its store is locked or away, as long as its patience lasts; then raise.

    The method runs from its beginning again, so it must first look for what it did before.
    """

    @functools.wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        retrying = Retrying(
            retry=retry_if_exception(_passes),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            stop=stop_after_delay(self.patience_s),
            reraise=True,
        )
        with told(self.uri):
            return retrying(method, self, *args, **kwargs)

    return call


@contextmanager
def told(uri: str) -> Iterator[None]:
    """Turn faults of the store at `uri` into TrackingError; faults of ours keep their traceback."""
    try:
        yield
    except TrackingError:
        raise
    except Exception as error:
        if not _is_of_the_store(error):
            raise
        secret = redacted(uri) != uri  # then the cause's text may hold it too
        raise explained(error, uri) from (None if secret else error)


def explained(error: Exception, uri: str) -> TrackingError:
    """What went wrong with the store at `uri` and what to do about it, without its password."""
    text, where = redacted(str(error)).strip(), redacted(uri)
    for signs, advice in ADVICE.items():
        if any(sign in text for sign in signs):
            return TrackingError(f"MLflow at {where} cannot be used: {advice.format(uri=shlex.quote(where))}")
    reason = text.partition("\n")[0] or type(error).__name__
    return TrackingError(f"MLflow at {where} cannot be used: {reason}")


def _passes(error: BaseException) -> bool:
    return not isinstance(error, TrackingError) and any(text in str(error) for text in PASSING)


def _is_of_the_store(error: Exception) -> bool:
    libraries = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return isinstance(error, OSError) or bool(libraries & STORE_LIBRARIES)
