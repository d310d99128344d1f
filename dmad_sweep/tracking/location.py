"""Which MLflow store, written so that it means the same from every working directory."""

import re
from pathlib import Path
from urllib.parse import unquote

from dmad_sweep.errors import TrackingError
from dmad_sweep.records.files import OutputsFolder

RELATIVE_FILE = re.compile(r"sqlite:///(?P<path>[^/?:][^?]*)(?P<query>\?.*)?", re.DOTALL)
ABSOLUTE_FILE = re.compile(r"sqlite:///(?P<path>/[^?]*)(\?.*)?", re.DOTALL)

CREDENTIALS = re.compile(r"(?<=://)([^/\s:@]*:(?!\d+(?:/|$))[^\s@]*@)?([^/\s]*@)?")
"""Up to the last @ of an authority: a password may hold one itself, and for SQLAlchemy a slash."""

SECRET_IN_QUERY = re.compile(
    r"([?&][\w.-]*(?:password|passwd|pwd|token|secret)[\w.-]*=)[^&\s'\"]+", re.IGNORECASE
)


def resolve(uri: str | None, outputs: OutputsFolder) -> str:
    """The URI for MLflow: the SQLite file of the outputs folder by default; file paths made absolute.

    Raises:
        TrackingError: the folder's name means something else inside a URI.
    """
    if uri is None:
        return f"sqlite:///{_plain(outputs.database.absolute())}"
    if match := RELATIVE_FILE.fullmatch(uri):
        return f"sqlite:///{_plain(Path.cwd())}/{match['path']}{match['query'] or ''}"
    return uri


def is_server(uri: str | None) -> bool:
    """Whether an MLflow server answers at `uri`, so that several processes may write at once."""
    return uri is not None and uri.startswith(("http://", "https://"))


def database_file(uri: str) -> Path | None:
    """The file of a SQLite store whose URI is resolved; None for any other store."""
    match = ABSOLUTE_FILE.fullmatch(uri)
    return Path(unquote(match["path"])) if match else None


def redacted(text: str) -> str:
    """Without the user name and password of any URI in it."""
    hidden = CREDENTIALS.sub(lambda found: "***@" if found[0] else "", text)
    return SECRET_IN_QUERY.sub(r"\1***", hidden)


def _plain(path: Path) -> Path:
    """SQLAlchemy decodes % and cuts at ?, MLflow does neither: together they would use two folders."""
    if strange := [character for character in "%?" if character in str(path)]:
        raise TrackingError(
            f"MLflow cannot keep a SQLite file at {path}: the path holds {' and '.join(strange)}; "
            "choose another folder with outputs=FOLDER, or a server with tracking.uri=http://…"
        )
    return path
