"""Which code measured."""

import hashlib
import importlib.metadata
import importlib.util
import re
import socket
import subprocess
from functools import cache
from pathlib import Path

import dmad_sweep
from dmad_sweep.records.record import Provenance


def provenance(conf: Path, driver: str | None) -> Provenance:
    """The installed code's identity; `conf` is the configuration tree in use."""
    commit, dirty = _git_state()
    return Provenance(
        host=socket.gethostname(),
        version=dmad_sweep.__version__,
        code_hash=_code_hash(conf),
        commit=commit,
        dirty=dirty,
        driver=driver,
    )


@cache
def version_of(package: str) -> str | None:
    """The installed version, without importing the package; None where there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def torch_version() -> str | None:
    """`torch.__version__` without importing torch; None where there is none.

    The version that pip knows is not it: wheels of PyPI lack the build there, as in 2.11.0+cu130.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    found = re.search(r"^__version__ = ['\"](.+)['\"]", text, re.MULTILINE)
    return found[1] if found else None


@cache
def _code_hash(conf: Path) -> str:
    """Hash of all Python files of the package and all files of the configuration tree."""
    package = Path(dmad_sweep.__file__).parent
    digest = hashlib.sha256()
    for root, pattern in ((package, "*.py"), (conf, "*.yaml")):
        for file in sorted(root.rglob(pattern)):
            digest.update(f"{file.relative_to(root).as_posix()}\0".encode())
            digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


@cache
def _git_state() -> tuple[str | None, bool | None]:
    """Commit and dirtiness of the checkout that the package lies in; (None, None) when installed."""
    root = Path(dmad_sweep.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None, None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        dirty = bool(_git(root, "status", "--porcelain", "--", "dmad_sweep", "conf", "hydra_plugins"))
    except (OSError, subprocess.SubprocessError):
        return None, None
    return commit, dirty


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
