"""Accumulated gradients against those of the whole batch, on the same weights, samples and draws.

Each cycle runs every turn of a recipe twice without stepping: with the effective batch as one micro-batch,
and accumulated as planned. Then it runs the turns for real and counts what advanced.
"""

import math
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from dmad_sweep.records.plan import Plan
from dmad_sweep.records.verification import Agreement, Calls, Verification, worse
from dmad_sweep.workload.inventory import Inventory
from dmad_sweep.workload.optimization import Trainer
from dmad_sweep.workload.protocol import Workload


class Recipe(Workload, Protocol):
    """A workload whose optimizer steps can be cut into micro-batches of any size."""

    micro_batch: int
    trainers: dict[str, Trainer]


class AccumulationCheck:
    """A workload of one turn that checks another one."""

    turns = ("verify",)

    def __init__(self, plan: Plan, recipe: Recipe) -> None:
        self._plan, self._recipe = plan, recipe
        self._cycles = 0
        self._agreements: dict[str, Agreement] = {}
        self._boundaries: Counter[str] = Counter()
        self._calls: dict[str, Counter[str]] = {}
        self._counting = False
        self._average_updates = 0

    def load(self) -> None:
        self._recipe.load()
        self._move_apart()
        for name, trainer in self._recipe.trainers.items():
            self._calls[name] = Counter()
            for owner, call, counter in (
                (trainer.optimizer, "zero_grad", "zero_grads"),
                (trainer.scheduler, "step", "scheduler_steps"),
            ):
                setattr(owner, call, self._counted(getattr(owner, call), name, counter))

    def fetch(self, cycle: int, turn: str) -> None:
        """Each turn of the recipe fetches for itself."""

    def run(self, cycle: int, turn: str) -> None:
        for own_turn in self._recipe.turns:
            self._recipe.fetch(cycle, own_turn)
            whole = self._gradients(cycle, own_turn, self._plan.effective_batch, 1, Counter())
            accumulated = self._gradients(
                cycle, own_turn, self._plan.batch.size, self._plan.accumulation.steps, self._boundaries
            )
            for network, gradients in whole.items():
                found = agreement(gradients, accumulated[network])
                self._agreements[network] = worse(self._agreements.get(network), found)
        self._step(cycle)
        self._cycles += 1

    def inventory(self) -> Inventory:
        inventory = self._recipe.inventory()
        inventory.verification = self._verification(inventory)
        return inventory

    @torch.no_grad()
    def _move_apart(self) -> None:
        """Change every trained weight by about a tenth, and constants by about one.

        Teacher, student and fake score start as one network. Distribution matching is then a difference of
        equals: with `tiny` in float32, rounding alone made accumulated gradients differ by 1e-3.
        """
        for network, parameters in sorted(self._recipe.inventory().trained().items()):
            generator = torch.Generator(parameters[0].device)
            generator.manual_seed(zlib.crc32(network.encode()))
            for parameter in parameters:
                noise = torch.randn(parameter.shape, generator=generator, device=parameter.device)
                spread = parameter.float().std(correction=0)
                # norms and an adapter's second factor start as constants
                share = torch.where(spread > 0, 0.1 * spread, 1.0)
                parameter.add_((share * noise).to(parameter.dtype))

    def _gradients(
        self, cycle: int, turn: str, micro_batch: int, micro_steps: int, boundaries: Counter[str]
    ) -> dict[str, list[Tensor]]:
        """By network, the gradients at the last boundary of a turn that steps nothing."""
        self._cut(micro_batch, micro_steps)
        taken: dict[str, list[Tensor]] = {}
        for name, trainer in self._recipe.trainers.items():
            trainer.inspect = partial(self._take, name, trainer, taken, boundaries)
        self._recipe.run(cycle, turn)
        for trainer in self._recipe.trainers.values():
            trainer.inspect = None
        return taken

    def _take(
        self, name: str, trainer: Trainer, taken: dict[str, list[Tensor]], boundaries: Counter[str]
    ) -> None:
        boundaries[name] += 1
        mine = set(trainer.parameters)
        for network, parameters in self._recipe.inventory().trained().items():
            if mine.issuperset(parameters):
                taken[network] = [
                    torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() for p in parameters
                ]

    def _step(self, cycle: int) -> None:
        """The turns for real, counted."""
        self._cut(self._plan.batch.size, self._plan.accumulation.steps)
        average = self._recipe.inventory().average
        before = average.updates if average else 0
        self._counting = True
        for turn in self._recipe.turns:
            self._recipe.fetch(cycle, turn)
            self._recipe.run(cycle, turn)
        self._counting = False
        self._average_updates += average.updates - before if average else 0

    def _cut(self, micro_batch: int, micro_steps: int) -> None:
        self._recipe.micro_batch = micro_batch
        for trainer in self._recipe.trainers.values():
            trainer.micro_steps = micro_steps

    def _counted(self, call: Callable[..., Any], trainer: str, name: str) -> Callable[..., Any]:
        def counted(*arguments: Any, **keywords: Any) -> Any:
            self._calls[trainer][name] += self._counting
            return call(*arguments, **keywords)

        return counted

    def _verification(self, inventory: Inventory) -> Verification:
        return Verification(
            micro_steps=self._plan.accumulation.steps,
            computed_in=self._plan.precision.computed_in,
            agreements=self._agreements,
            calls={
                name: Calls(
                    expected=self._cycles,
                    steps=trainer.steps,
                    zero_grads=self._calls[name]["zero_grads"],
                    scheduler_steps=self._calls[name]["scheduler_steps"],
                    boundaries=self._boundaries[name],
                )
                for name, trainer in self._recipe.trainers.items()
            },
            average_updates=self._average_updates if inventory.average else None,
            expected_average_updates=self._cycles if inventory.average else None,
            coupled_layers=inventory.coupled_layers(),
        )


def agreement(whole: list[Tensor], accumulated: list[Tensor]) -> Agreement:
    """Over all tensors together, in float64: long sums of squares lose digits in float32."""
    squares = accumulated_squares = difference_squares = products = 0.0
    for first, second in zip(whole, accumulated, strict=True):
        a, b = first.double(), second.double()
        squares += float((a * a).sum())
        accumulated_squares += float((b * b).sum())
        difference_squares += float(((b - a) ** 2).sum())
        products += float((a * b).sum())
    norm, accumulated_norm = math.sqrt(squares), math.sqrt(accumulated_squares)
    return Agreement(
        norm=norm,
        accumulated_norm=accumulated_norm,
        relative_l2=math.sqrt(difference_squares) / norm if norm else math.inf,
        cosine=products / (norm * accumulated_norm) if norm and accumulated_norm else 0.0,
    )
