"""`python -m dmad_sweep.config.documentation`: every group and key as Markdown, from schema and files."""

from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from dmad_sweep.config.project import conf_folder
from dmad_sweep.config.schema import Config

INTRODUCTION = """\
# Configuration

Made from the schema by `python -m dmad_sweep.config.documentation`.

Keys are set on the command line (`schedule.measured_cycles=10`), groups choose a file (`schedule=quick`);
with `-m`, lists of values are combined (`precision=bf16,fp32`). Options of your own go into a folder given
with `--config-dir`, in subfolders named like the groups.

## Groups

| group | options |
|---|---|
"""

NUMERIC = {
    "batch": "any positive integer",
    "accumulation": "any positive integer",
    "resolution": "any multiple of 8 pixels: `640`, or height x width, `512x768`",
}


def as_markdown(conf: Path) -> str:
    """The page for the configuration tree `conf`."""
    lines = [INTRODUCTION.rstrip("\n")]
    for folder in sorted(path for path in conf.iterdir() if path.is_dir()):
        options = ", ".join(f"`{file.stem}`" for file in sorted(folder.glob("*.yaml"), key=_by_number))
        more = f"; {NUMERIC[folder.name]}" if folder.name in NUMERIC else ""
        lines.append(f"| `{folder.name}` | {options}{more} |")
    lines += ["", "## Keys", "", "| key | default | meaning |", "|---|---|---|"]
    lines += [f"| `{key}` | `{default}` | {meaning} |" for key, default, meaning in leaves(Config)]
    return "\n".join(lines) + "\n"


def leaves(kind: type[Any], prefix: str = "") -> list[tuple[str, str, str]]:
    """(key, default, meaning) of every key below a schema dataclass, in order."""
    found: list[tuple[str, str, str]] = []
    for entry in fields(kind):
        if isinstance(entry.type, type) and is_dataclass(entry.type):
            found += leaves(entry.type, f"{prefix}{entry.name}.")
            continue
        default = entry.default if entry.default_factory is MISSING else entry.default_factory()
        shown = "null" if default is None else str(default)
        found.append((f"{prefix}{entry.name}", shown, entry.metadata["help"]))
    return found


def _by_number(file: Path) -> tuple[bool, int, str]:
    """Sizes in their order, names after them."""
    digits = file.stem.partition("x")[0]
    return (not digits.isdigit(), int(digits) if digits.isdigit() else 0, file.stem)


if __name__ == "__main__":
    print(as_markdown(conf_folder()), end="")
