"""How plots look: readable in grey, by marker, dash and hatch; in a font that has every character."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dmad_sweep.analysis.language import speaking, spoken

log = logging.getLogger(__name__)

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Okabe and Ito's, which the colour-blind tell apart too; yellow left out, too light on white."""

HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "oo", "--")
GREYS = ("0.35", "0.85", "0.65", "0.95", "0.75", "0.5", "0.9", "1.0")

CHINESE_FONTS = (
    "Noto Sans CJK SC",
    "Source Han Sans SC",
    "Noto Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Microsoft YaHei",
    "SimHei",
    "PingFang SC",
    "Heiti SC",
    "Noto Sans CJK JP",
    "Arial Unicode MS",
)
"""Of Debian's fonts-noto-cjk matplotlib reads the first face, which calls itself Japanese and has all."""


@contextmanager
def drawing(salt: str) -> Iterator[None]:
    """Within, matplotlib draws in our style and in the spoken language, or in English where no font has it.

    `salt` tells the identifiers of one SVG from those of others on the same page.
    """
    import matplotlib as mpl

    font = chinese_font() if spoken() == "zh" else None
    language = spoken()
    if language == "zh" and font is None:
        log.warning(
            "plots are labelled in English: no font with Chinese characters was found; install one "
            "(Debian: apt-get install fonts-noto-cjk)"
        )
        language = "en"
    settings: dict[Any, object] = {
        "font.family": [font, "DejaVu Sans"] if font else ["DejaVu Sans"],
        "font.size": 10,
        "axes.grid": True,
        "grid.color": "0.85",
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": salt,
        "svg.fonttype": "path",
        "text.parse_math": False,  # names come from users: a $ in one is a $
    }
    with mpl.rc_context(settings), speaking(language):
        yield


def chinese_font() -> str | None:
    """Name of an installed font that has Chinese characters, even one installed a moment ago."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    def known() -> str | None:
        names = {entry.name for entry in fontManager.ttflist}
        return next((name for name in CHINESE_FONTS if name in names), None)

    if (name := known()) is not None:
        return name
    listed = {entry.fname for entry in fontManager.ttflist}  # matplotlib keeps its list between runs
    for file in findSystemFonts():
        if file not in listed:
            try:
                fontManager.addfont(file)
            except Exception:  # a font that cannot be read is one that is not there
                continue
    return known()
