"""A score network: a backbone in one role and one precision regime."""

from typing import Any

from torch import Tensor, nn

from dmad_sweep.workload.attention import kernels_in_graph
from dmad_sweep.workload.backbones import Backbone
from dmad_sweep.workload.condition import Condition
from dmad_sweep.workload.precision import Regime


class _FeaturesReached(Exception):  # noqa: N818 - not an error: it ends a forward early
    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output


class ScoreNetwork:
    """Predicts noise or velocity and, up to the middle of its backbone, gives the discriminator's features.

    `trained` are the weights that its optimizer changes. A backbone's memory is counted once, for the network
    that `owns_backbone`.
    """

    def __init__(
        self,
        role: str,
        backbone: Backbone,
        regime: Regime,
        *,
        trained: list[nn.Parameter],
        owns_backbone: bool,
    ) -> None:
        self.role, self.backbone, self.trained = role, backbone, trained
        self.owned = list(dict.fromkeys([*(backbone.weights if owns_backbone else ()), *trained]))
        """Weights that this network's size counts."""
        self.buffers: list[Tensor] = list(backbone.module.buffers()) if owns_backbone else []
        self.last_input_shape: list[int] | None = None
        self.attention: list[str] | None = None
        """Attention kernels of the first forward with gradients."""
        self._regime = regime

    @property
    def recomputations(self) -> int:
        """Blocks that were run again inside this network's backwards."""
        return self.backbone.recomputations[self.role]

    def predict(self, noisy: Tensor, timestep: Tensor, condition: Condition) -> Tensor:
        """Noise or velocity (B, C, h, w) in float32 for latents of the same shape at `timestep` (B,)."""
        predicted = self._forward(noisy, timestep, condition).float()
        if self.attention is None and predicted.requires_grad:
            self.attention = kernels_in_graph(predicted)
        return predicted

    def predict_with_features(
        self, noisy: Tensor, timestep: Tensor, condition: Condition
    ) -> tuple[Tensor, Tensor]:
        """A prediction as `predict`, and features as `features`, from one whole forward."""
        seen: list[Any] = []
        hook = self.backbone.middle.register_forward_hook(lambda module, inputs, output: seen.append(output))
        try:
            predicted = self.predict(noisy, timestep, condition)
        finally:
            hook.remove()
        return predicted, self._as_map(seen[0], noisy)

    def features(self, noisy: Tensor, timestep: Tensor, condition: Condition) -> Tensor:
        """Features (B, C', h', w') in float32. What follows the middle does not run, as in DMD2.

        The forward is left by an exception from a hook on the middle; its traceback, which would keep
        earlier activations alive, goes with the exception at the end of the except clause.
        """

        def leave(module: nn.Module, inputs: Any, output: Any) -> None:
            raise _FeaturesReached(output)

        hook = self.backbone.middle.register_forward_hook(leave)
        try:
            self._forward(noisy, timestep, condition)
        except _FeaturesReached as reached:
            return self._as_map(reached.output, noisy)
        finally:
            hook.remove()
        raise AssertionError("the forward ended without passing the middle")

    def train_weights(self, on: bool) -> None:
        """Let gradients reach the trained weights, or pass through them only."""
        for parameter in self.trained:
            parameter.requires_grad_(on)

    def checkpoint_blocks(self) -> None:
        """Recompute blocks in backward."""
        self.backbone.checkpoint_blocks_of(self.role)

    def _forward(self, noisy: Tensor, timestep: Tensor, condition: Condition) -> Tensor:
        self.last_input_shape = list(noisy.shape)
        dtype = self.backbone.dtype
        with self._regime.autocast(), self.backbone.acting.as_(self.role):
            return self.backbone.predict(noisy.to(dtype), timestep, condition.to(dtype))

    def _as_map(self, output: Any, noisy: Tensor) -> Tensor:
        return self.backbone.features(output, *noisy.shape[2:]).float()
