"""The parent side never loads torch; the child side never loads Hydra or MLflow."""

import json
import subprocess
import sys

import pytest

PARENT = [
    "dmad_sweep.app",
    "dmad_sweep.report",
    "dmad_sweep.sweep.sweep",
    "dmad_sweep.sweep.current",
    "dmad_sweep.tracking.store",
    "dmad_sweep.analysis.table",
    "hydra_plugins.dmad_sweep.launcher",
]
CHILD = [
    "dmad_sweep.child.entry",
    "dmad_sweep.child.loop",
    "dmad_sweep.child.server",
    "dmad_sweep.workload.create",
    "dmad_sweep.workload.images",
]
RECORDS = ["dmad_sweep.records.row", "dmad_sweep.records.metrics", "dmad_sweep.records.files"]


def loaded_by(module: str) -> set[str]:
    """Top-level names in sys.modules after importing `module` in a fresh interpreter."""
    code = f"import {module}, sys, json; print(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("module", PARENT)
def test_the_parent_side_loads_neither_torch_nor_mlflow_to_start(module: str) -> None:
    assert not loaded_by(module) & {"torch", "diffusers", "mlflow", "numpy"}


@pytest.mark.parametrize("module", CHILD)
def test_the_child_side_loads_neither_hydra_nor_mlflow(module: str) -> None:
    assert not loaded_by(module) & {"hydra", "omegaconf", "mlflow"}


@pytest.mark.parametrize("module", RECORDS)
def test_records_need_the_standard_library_alone(module: str) -> None:
    ours = {"dmad_sweep", "__main__", "__mp_main__"}
    site = {"distutils_hack", "_distutils_hack", "sitecustomize", "usercustomize"}
    foreign = {name for name in loaded_by(module) if not name.startswith("_")} - ours - site
    assert foreign <= set(sys.stdlib_module_names) | {n for n in foreign if n.endswith("_hook")}
