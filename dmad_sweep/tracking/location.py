"""Which MLflow store, written so that it means the same from every working directory."""

import re
from pathlib import Path

from dmad_sweep.records.files import OutputsFolder

CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")


def resolve(uri: str | None, outputs: OutputsFolder) -> str:
    """The URI for MLflow: the SQLite file of the outputs folder by default; file paths made absolute."""
    if uri is None:
        return f"sqlite:///{outputs.database.absolute()}"
    match = re.fullmatch(r"sqlite:///(?!/)(.+)", uri)
    if match:
        return f"sqlite:///{Path(match[1]).absolute()}"
    return uri


def is_server(uri: str | None) -> bool:
    """Whether an MLflow server answers at `uri`, so that several processes may write at once."""
    return uri is not None and uri.startswith(("http://", "https://"))


def redacted(text: str) -> str:
    """Without the user name and password of any URI in it."""
    return CREDENTIALS.sub("***@", text)
