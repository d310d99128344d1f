"""From a plan to its workload."""

from collections.abc import Callable

import torch

from dmad_sweep.records.plan import Plan
from dmad_sweep.workload.protocol import Span, Workload
from dmad_sweep.workload.recipes.baseline import Baseline
from dmad_sweep.workload.recipes.dmd2 import Dmd2
from dmad_sweep.workload.recipes.fastgen import FastGen
from dmad_sweep.workload.recipes.sft import Sft
from dmad_sweep.workload.recipes.verification import AccumulationCheck, Recipe

RECIPES: dict[str, Callable[[Plan, torch.device, Span], Recipe]] = {
    "dmd2": Dmd2,
    "fastgen": FastGen,
    "sft": Sft,
}


def create_workload(plan: Plan, device: torch.device, span: Span) -> Workload:
    """The workload that the plan names, nothing loaded yet."""
    if plan.phase.name == "inference":
        return Baseline(plan, device, span)
    recipe = RECIPES[plan.recipe.name](plan, device, span)
    return AccumulationCheck(plan, recipe) if plan.phase.name == "verify_accumulation" else recipe
