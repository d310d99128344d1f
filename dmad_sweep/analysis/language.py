"""The language in which tables, plots and advice speak: English templates and their translations."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from dmad_sweep.analysis.chinese import CHINESE

CATALOGUES: dict[str, dict[str, str]] = {"en": {}, "zh": CHINESE}

_spoken: ContextVar[str] = ContextVar("language", default="en")


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Within, `tr` speaks `en` or `zh`."""
    before = _spoken.set(language)
    try:
        yield
    finally:
        _spoken.reset(before)


def spoken() -> str:
    return _spoken.get()


def tr(template: str, **values: object) -> str:
    """The template in the language that is spoken, with its values filled in.

    One that has no translation stands as it is: a reader understands it better than nothing.
    """
    text = CATALOGUES[_spoken.get()].get(template, template)
    return text.format(**values) if values else text
