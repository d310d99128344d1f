"""Errors that a person can act on; entry points turn them into one line and an exit code."""

from pathlib import Path


class DmadSweepError(Exception):
    """Base of every error whose message says what is wrong, where, and what to do next."""


class ConfigError(DmadSweepError):
    """A value of the configuration is refused before anything starts (exit code 2)."""


class RecordError(DmadSweepError):
    """A file of this project cannot be read: truncated, hostile or of another schema version."""


class OutputsError(DmadSweepError):
    """The outputs folder cannot be written any more: full, read-only, gone."""

    def __init__(self, folder: Path, error: OSError) -> None:
        super().__init__(
            f"{error.filename or folder}: cannot be written ({error.strerror}); what was measured is kept, "
            "and the same command continues once it can"
        )


class TrackingError(DmadSweepError):
    """The MLflow store cannot be reached or does not hold what was asked for."""


class UnsupportedError(DmadSweepError):
    """A combination that the model or machine cannot take; its trial is `invalid`, not failed."""
