"""docs/configuration.md is what the schema says."""

from pathlib import Path

from dmad_sweep.config.documentation import as_markdown
from dmad_sweep.config.project import conf_folder

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    """Write it anew with: python -m dmad_sweep.config.documentation > docs/configuration.md"""
    assert PAGE.read_text(encoding="utf-8") == as_markdown(conf_folder())
