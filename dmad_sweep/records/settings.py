"""The settings of a trial: the same dataclasses are the configuration schema and part of the plan.

Each field's metadata holds its documentation (docs/configuration.md is generated from it). Range checks
run whenever an instance is made, from a composed configuration or from a plan on disk, so a value that is
refused here can reach no process. Fields that may be anything the user's own files define (names of
precisions, say) are free strings.
"""

from dataclasses import dataclass, field
from typing import Any

from dmad_sweep.errors import ConfigError

SPATIAL_MULTIPLE = 8
"""Pixels: every VAE of the supported models reduces by 8 at least and their UNets take any multiple of it."""

MODELS = (
    "auto",
    "tiny",
    "sd15",
    "sdxl",
    "pixart_sigma",
    "sana_0.6b",
    "sana_1.6b",
    "sd3_medium",
    "flux_schnell",
)
RECIPES = ("dmd2", "fastgen", "sft")
PHASES = ("train", "inference", "verify_accumulation")
SOURCES = ("synthetic", "images")
DEVICES = ("auto", "cuda", "cpu")
DTYPES = ("float32", "float16", "bfloat16")
NETWORKS = ("student", "fake_score", "teacher")
TRAINED = NETWORKS[:2]
ATTENTIONS = ("auto", "flash", "efficient", "cudnn", "math")
OPTIMIZERS = ("adamw", "adamw_fused", "adamw_8bit", "adafactor", "sgd")
EMAS = ("none", "gpu", "cpu")


def documented(default: Any, help_text: str) -> Any:
    """A dataclass field with a default and the text that the documentation shows for it."""
    return field(default=default, metadata={"help": help_text})


def refuse(key: str, value: object, allowed: str) -> ConfigError:
    """The one form in which a bad value is refused: key, value, what is allowed."""
    return ConfigError(f"{key}={value} is not allowed: {allowed}")


def require_choice(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise refuse(key, value, f"choose one of {', '.join(allowed)}")


def require_minimum(key: str, value: float, minimum: float) -> None:
    if not value >= minimum:  # also refuses NaN
        raise refuse(key, value, f"give a number of at least {minimum}")


@dataclass
class Batch:
    size: int = documented(1, "Micro-batch: samples in one forward. Any positive integer.")

    def __post_init__(self) -> None:
        require_minimum("batch.size", self.size, 1)


@dataclass
class Resolution:
    height: int = documented(512, "Image height in pixels, a multiple of 8.")
    width: int = documented(512, "Image width in pixels, a multiple of 8.")

    def __post_init__(self) -> None:
        for key, value in (("height", self.height), ("width", self.width)):
            require_minimum(f"resolution.{key}", value, SPATIAL_MULTIPLE)
            if value % SPATIAL_MULTIPLE:
                below = value - value % SPATIAL_MULTIPLE
                raise refuse(
                    f"resolution.{key}",
                    value,
                    f"use a multiple of {SPATIAL_MULTIPLE}, such as {below} or {below + SPATIAL_MULTIPLE}",
                )

    @property
    def label(self) -> str:
        """`512` when square, else height first: `512x768`."""
        return str(self.height) if self.height == self.width else f"{self.height}x{self.width}"


@dataclass
class Accumulation:
    steps: int = documented(1, "Micro-steps per optimizer step (gradient accumulation).")
    auto: bool = documented(False, "Choose the steps so that batch × steps is target.effective_batch.")

    def __post_init__(self) -> None:
        require_minimum("accumulation.steps", self.steps, 1)


@dataclass
class Target:
    effective_batch: int | None = documented(
        None,
        "Effective batch that training needs: accumulation=auto makes it up (a batch that does not divide it "
        "is invalid), and the report's advice reaches it.",
    )
    resolution: str | None = documented(
        None, "Least resolution that training needs, 1024 or 512x768: where the report's advice leads."
    )
    headroom_gib: float | None = documented(
        None, "GiB of the card that must stay free; null keeps a twentieth of it."
    )

    def __post_init__(self) -> None:
        if self.effective_batch is not None:
            require_minimum("target.effective_batch", self.effective_batch, 1)
        if self.resolution is not None:
            self.height_and_width()
        if self.headroom_gib is not None:
            require_minimum("target.headroom_gib", self.headroom_gib, 0)

    def height_and_width(self) -> tuple[int, int] | None:
        """Pixels of the resolution that is wanted. Raises ConfigError for what is none."""
        if self.resolution is None:
            return None
        sides = self.resolution.split("x")
        if len(sides) > 2 or not all(side.isascii() and side.isdigit() and int(side) for side in sides):
            raise refuse(
                "target.resolution", self.resolution, "give a side, 1024, or height x width, 512x768"
            )
        wanted = Resolution(int(sides[0]), int(sides[-1]))
        return wanted.height, wanted.width


@dataclass
class Precision:
    """A precision regime. Two regimes are never merged in one table."""

    name: str = documented("bf16", "Name of the regime in tables and params.")
    weights: str = documented("float32", "Type of trained weights, gradients and optimizer states.")
    frozen: str = documented("bfloat16", "Type in which the teacher is stored (the compute type).")
    autocast: str | None = documented("bfloat16", "Type of torch.autocast around forwards; null for none.")
    grad_scaler: bool = documented(False, "Scale losses with torch.amp.GradScaler (fp16).")
    tf32: bool = documented(False, "Let float32 matrix products and convolutions run in TF32.")

    @property
    def computed_in(self) -> str:
        """The type of matrix products in forwards: autocast's, else the weights'."""
        return self.autocast or self.weights

    def __post_init__(self) -> None:
        require_choice("precision.weights", self.weights, DTYPES)
        require_choice("precision.frozen", self.frozen, DTYPES)
        if self.autocast is not None:
            require_choice("precision.autocast", self.autocast, DTYPES[1:])


@dataclass
class Checkpointing:
    name: str = documented("none", "Name of the setting in tables and params.")
    networks: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Networks whose blocks are recomputed in backward: student, fake_score, teacher "
            "(where gradients pass through it)."
        },
    )

    def __post_init__(self) -> None:
        for network in self.networks:
            require_choice("checkpointing.networks", network, NETWORKS)


@dataclass
class Adapter:
    """Low-rank adapters instead of whole trained networks."""

    name: str = documented("full", "Name of the setting in tables and params.")
    networks: list[str] = field(
        default_factory=list,
        metadata={"help": "Networks that train a low-rank adapter on frozen weights: student, fake_score."},
    )
    rank: int = documented(64, "Rank of the adapters; 64 is DMD2's for SDXL.")
    targets: list[str] = field(
        default_factory=lambda: ["to_q", "to_k", "to_v", "to_out.0"],
        metadata={"help": "Linear layers that get an adapter, by the end of their names."},
    )
    share_backbone: bool = documented(
        True, "Keep the frozen weights once, for the teacher and every adapted network."
    )

    def __post_init__(self) -> None:
        for network in self.networks:
            require_choice("adapter.networks", network, TRAINED)
        require_minimum("adapter.rank", self.rank, 1)

    @property
    def label(self) -> str:
        """`full`, or the name with the rank: `lora-64`."""
        return f"{self.name}-{self.rank}" if self.networks else self.name


@dataclass
class Attention:
    name: str = documented(
        "auto", "Kernels that attention may use: auto (torch chooses), flash, efficient, cudnn or math."
    )

    def __post_init__(self) -> None:
        require_choice("attention.name", self.name, ATTENTIONS)


@dataclass
class Optimizer:
    """Learning rate and weight decay are DMD2's for SD1.5."""

    name: str = documented(
        "adamw", "adamw (torch's default, foreach), adamw_fused, adamw_8bit (bitsandbytes), adafactor, sgd."
    )
    learning_rate: float = documented(1e-5, "Learning rate of all trained networks.")
    weight_decay: float = documented(1e-2, "Weight decay of all trained networks.")
    warmup_steps: int = documented(0, "Optimizer steps over which the learning rate rises to its value.")

    def __post_init__(self) -> None:
        require_choice("optimizer.name", self.name, OPTIMIZERS)
        require_minimum("optimizer.learning_rate", self.learning_rate, 0)
        require_minimum("optimizer.weight_decay", self.weight_decay, 0)
        require_minimum("optimizer.warmup_steps", self.warmup_steps, 0)


@dataclass
class Ema:
    """An exponential moving average of the student's weights, updated at its optimizer steps."""

    name: str = documented("none", "none, gpu (a float32 copy on the device) or cpu (in host memory).")
    decay: float = documented(0.9999, "Share of the average that each update keeps.")

    def __post_init__(self) -> None:
        require_choice("ema.name", self.name, EMAS)
        if not 0 <= self.decay <= 1:
            raise refuse("ema.decay", self.decay, "give a number from 0 to 1")


@dataclass
class Model:
    name: str = documented(
        "auto",
        "auto (sd15 on a CUDA device, tiny on a CPU), tiny, sd15, sdxl, pixart_sigma, sana_0.6b, sana_1.6b, "
        "sd3_medium or flux_schnell.",
    )
    pretrained: str | None = documented(
        None, "Local diffusers folder (unet/ or transformer/, vae/) to load instead of random weights."
    )

    def __post_init__(self) -> None:
        require_choice("model.name", self.name, MODELS)


@dataclass
class Recipe:
    """The training iteration. Defaults are DMD2's for SD1.5 (experiments/sdv1.5 of its repository)."""

    name: str = documented("dmd2", "Which iteration is run.")
    student_update_freq: int = documented(
        10,
        "K: a student turn in every K-th iteration, beside the fake-score turn (dmd2) or instead (fastgen).",
    )
    guidance_scale: float = documented(1.75, "Classifier-free guidance of the teacher.")
    gan_weight: float = documented(1e-3, "Weight of the generator's GAN loss beside distribution matching.")
    discriminator_weight: float = documented(1e-2, "Weight of the discriminator loss beside denoising.")
    gan_max_timestep: int = documented(1000, "Latents are noised below this timestep before the head.")
    student_timestep: int = documented(999, "Timestep at which the one-step student is conditioned.")
    max_grad_norm: float = documented(10.0, "Gradient norm is clipped to this before optimizer steps.")

    def __post_init__(self) -> None:
        require_choice("recipe.name", self.name, RECIPES)
        require_minimum("recipe.student_update_freq", self.student_update_freq, 1)
        for key in ("guidance_scale", "gan_weight", "discriminator_weight"):
            require_minimum(f"recipe.{key}", getattr(self, key), 0)
        for key in ("gan_max_timestep", "student_timestep"):
            if not 0 < getattr(self, key) <= 1000:
                raise refuse(f"recipe.{key}", getattr(self, key), "give a timestep of 1 to 1000")
        if not self.max_grad_norm > 0:
            raise refuse("recipe.max_grad_norm", self.max_grad_norm, "give a positive number")


@dataclass
class Data:
    source: str = documented("synthetic", "synthetic, or images (a folder of pictures in data.root).")
    root: str | None = documented(None, "Folder of pictures for data.source=images.")
    num_samples: int = documented(64, "Sample ids 0 to num_samples-1 are used, in order, again and again.")
    seed: int = documented(0, "Seed of samples, of every draw and of random weights.")

    def __post_init__(self) -> None:
        require_choice("data.source", self.source, SOURCES)
        require_minimum("data.num_samples", self.num_samples, 1)
        require_minimum("data.seed", self.seed, 0)
        if self.source == "images" and not self.root:
            raise ConfigError("data=images needs data.root=FOLDER, a folder of pictures")


@dataclass
class Phase:
    name: str = documented(
        "train",
        "train; inference: the baseline, student forward only, no gradient; or verify_accumulation: compare "
        "accumulated gradients with those of the whole batch, and count what advances at the boundary.",
    )

    def __post_init__(self) -> None:
        require_choice("phase.name", self.name, PHASES)


@dataclass
class Memory:
    snapshot: bool = documented(
        False,
        "Keep the allocator's history of the peak, or of the moment memory ran out, as an artifact that "
        "pytorch.org/memory_viz opens. Slows the trial down; CUDA only.",
    )


@dataclass
class Schedule:
    warmup_cycles: int = documented(
        2, "Cycles before timing starts; at least 2, because optimizer state appears in the first."
    )
    measured_cycles: int = documented(5, "Cycles that are timed.")
    timeout_s: float | None = documented(None, "Seconds after which a trial is ended; null for no bound.")
    stall_s: float | None = documented(
        900.0, "Seconds without a report of progress after which a trial is ended; null for no bound."
    )
    repeats: int = documented(
        1, "Times each combination is measured, each in a process of its own; the table merges them."
    )

    def __post_init__(self) -> None:
        require_minimum("schedule.warmup_cycles", self.warmup_cycles, 2)
        require_minimum("schedule.measured_cycles", self.measured_cycles, 1)
        for key in ("timeout_s", "stall_s"):
            bound = getattr(self, key)
            if bound is not None and not bound > 0:
                raise refuse(f"schedule.{key}", bound, "give a positive number of seconds, or null")
        require_minimum("schedule.repeats", self.repeats, 1)
