"""Low-rank adapters (LoRA, Hu et al. 2021, arXiv 2106.09685), several on one frozen network.

Written here because one backbone acts as teacher, student and fake score in the same step: the role has to
be chosen for each forward and again for each recomputed block. peft's `set_adapter` instead freezes the
weights of every adapter but the chosen one, and a frozen leaf drops the gradients of graphs it is part of.
"""

import math

from torch import Tensor, nn

from dmad_sweep.errors import UnsupportedError
from dmad_sweep.workload.backbones import Acting, Backbone


class AdaptedLinear(nn.Module):
    """A frozen linear layer plus the low-rank update of the role that acts, where it has one."""

    def __init__(self, base: nn.Linear, acting: Acting) -> None:
        super().__init__()
        self.base = base
        self.down, self.up = nn.ModuleDict(), nn.ModuleDict()
        self._acting = acting

    def add(self, role: str, rank: int) -> list[nn.Parameter]:
        """A rank-`rank` update that is zero at first, of the default type and device."""
        down = nn.Linear(self.base.in_features, rank, bias=False)
        up = nn.Linear(rank, self.base.out_features, bias=False)
        nn.init.kaiming_uniform_(down.weight, a=math.sqrt(5))
        nn.init.zeros_(up.weight)
        self.down[role], self.up[role] = down, up
        return [*down.parameters(), *up.parameters()]

    def forward(self, features: Tensor) -> Tensor:
        output: Tensor = self.base(features)
        role = self._acting.role
        if role is None or role not in self.down:
            return output
        down, up = self.down[role], self.up[role]
        assert isinstance(down, nn.Linear)
        update: Tensor = up(down(features.to(down.weight.dtype)))
        return output + update.to(output.dtype)


def add_adapter(backbone: Backbone, role: str, rank: int, targets: list[str]) -> list[nn.Parameter]:
    """Give `role` an adapter on every linear layer whose name ends with one of `targets`; its weights.

    Raises:
        UnsupportedError: no layer has such a name.
    """
    trained: list[nn.Parameter] = []
    for name, module in list(backbone.module.named_modules()):
        if not any(name == target or name.endswith(f".{target}") for target in targets):
            continue
        if isinstance(module, nn.Linear):
            parent, _, last = name.rpartition(".")
            adapted = AdaptedLinear(module, backbone.acting)
            setattr(backbone.module.get_submodule(parent), last, adapted)
            module = adapted
        if isinstance(module, AdaptedLinear):
            trained += module.add(role, rank)
    if not trained:
        raise UnsupportedError(
            f"adapter.targets={targets}: no linear layer of {type(backbone.module).__name__} has such a name"
        )
    return trained
