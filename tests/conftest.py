"""Shared fixtures."""

import os
from pathlib import Path

import pytest
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
