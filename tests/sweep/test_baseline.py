"""When a sweep measures a baseline."""

import subprocess
import sys
from dataclasses import replace

import torch
from factories import make_gpu_plan, make_record

from dmad_sweep.config.schema import Config
from dmad_sweep.records.baseline import conditions_of
from dmad_sweep.records.row import Row, row_of
from dmad_sweep.records.settings import (
    Accumulation,
    Attention,
    Batch,
    Checkpointing,
    Ema,
    Phase,
    Resolution,
    Schedule,
)
from dmad_sweep.sweep.baseline import Baselines, baseline_settings
from dmad_sweep.sweep.provenance import torch_version

BASELINE = row_of(make_record(make_gpu_plan(phase=Phase("inference"))))
WANTED = conditions_of(BASELINE)
OTHER = replace(WANTED, precision="fp32")


def test_it_is_inference_of_one_sample_with_all_else_as_it_was() -> None:
    combination = Config(
        batch=Batch(4),
        accumulation=Accumulation(2),
        checkpointing=Checkpointing("student", ["student"]),
        ema=Ema("gpu"),
        attention=Attention("math"),
        resolution=Resolution(64, 128),
        schedule=Schedule(measured_cycles=3, repeats=5),
        outputs="/out",
    )
    assert baseline_settings(combination) == Config(
        phase=Phase("inference"),
        attention=Attention("math"),
        resolution=Resolution(64, 128),
        schedule=Schedule(measured_cycles=3),
        outputs="/out",
    )


def test_each_is_measured_once_however_it_ends() -> None:
    baselines = Baselines(list)
    assert [baselines.claim(wanted) for wanted in (WANTED, WANTED, OTHER)] == [True, False, True]
    assert baselines.claimed == 2


def test_earlier_sweeps_are_asked_once_and_only_when_it_matters() -> None:
    asked = []

    def earlier() -> list[Row]:
        asked.append(1)
        return [replace(BASELINE, precision="fp32")]

    baselines = Baselines(earlier)
    baselines.note(BASELINE)
    assert not baselines.claim(WANTED)
    assert not asked
    assert not baselines.claim(OTHER)
    assert baselines.claim(replace(WANTED, height=8))
    assert asked == [1]


def test_a_training_trial_is_no_baseline() -> None:
    baselines = Baselines(list)
    baselines.note(replace(BASELINE, phase="train"))
    assert baselines.claim(WANTED)


def test_the_version_of_torch_is_known_without_it() -> None:
    assert torch_version() == torch.__version__
    code = (
        "import sys; from dmad_sweep.sweep.provenance import torch_version; "
        "assert torch_version(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
