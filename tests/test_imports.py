"""The parent side never loads torch; the child side never loads Hydra or MLflow."""

import json
import os
import subprocess
import sys
from pathlib import Path

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


LATE_IMPORTS = """
import json, sys
from dmad_sweep.child.server import Server
Server._preload()
before = set(sys.modules)
from contextlib import nullcontext
import torch
from dmad_sweep.workload.architectures import ARCHITECTURES
from dmad_sweep.workload.create import create_workload
from dmad_sweep.workload.models import CLASSES
from plans import make_plan
for architecture in ARCHITECTURES.values():
    with torch.device("meta"):
        CLASSES[architecture.backbone](**architecture.config)
        CLASSES[architecture.vae.kind](**architecture.vae.config)
workload = create_workload(make_plan(), torch.device("cpu"), lambda stage: nullcontext())
workload.load()
late = set(sys.modules) - before
print(json.dumps(sorted(name for name in late if name.startswith(("diffusers.", "transformers.")))))
"""


def test_building_networks_imports_nothing_that_the_server_has_not() -> None:
    """diffusers imports a model's class, for seconds, when it is first named; in each child if not before."""
    tests = str(Path(__file__).parent)
    path = os.pathsep.join([tests, str(Path(tests).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", LATE_IMPORTS],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []
