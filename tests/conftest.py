"""Shared fixtures."""

import os
from pathlib import Path

import pytest

# Several test processes, each with its sweeps' children, share the cores: with a thread pool for every one
# of them the suite took over an hour. Set before torch reads it; children inherit it.
os.environ["OMP_NUM_THREADS"] = "1"

import torch

from dmad_sweep.records.files import TrialFolder


@pytest.fixture(scope="session", autouse=True)
def own_locks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sweeps of these tests wait for each other, not for other sweeps of this host."""
    os.environ["TMPDIR"] = str(tmp_path_factory.mktemp("tmp"))


@pytest.fixture
def folder(tmp_path: Path) -> TrialFolder:
    return TrialFolder(tmp_path / "trial")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """GPU tests are skipped where there is no GPU."""
    if torch.cuda.is_available():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
