"""Where titles may be broken."""

SOFT_HYPHEN = "\u00ad"
BREAK = "\u200b"
"""Zero-width space: a title may be broken here without a hyphen."""


def unbroken(title: str) -> str:
    """Without the places where it may be broken."""
    return title.replace(SOFT_HYPHEN, "").replace(BREAK, "")
