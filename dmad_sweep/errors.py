"""Errors that a person can act on; entry points turn them into one line and an exit code."""


class DmadSweepError(Exception):
    """Base of every error whose message says what is wrong, where, and what to do next."""


class ConfigError(DmadSweepError):
    """A value of the configuration is refused before anything starts (exit code 2)."""


class RecordError(DmadSweepError):
    """A file of this project cannot be read: truncated, hostile or of another schema version."""


class TrackingError(DmadSweepError):
    """The MLflow store cannot be reached or does not hold what was asked for."""


class UnsupportedError(DmadSweepError):
    """A combination that the model or machine cannot take; its trial is `invalid`, not failed."""
