"""A step as a person would write it: `python bare_step.py MODEL RECIPE BATCH SIDE [HISTORY]`, bf16 autocast.

Nothing of the tool but the networks is imported. Losses are kept by name, as scripts do for their logs.
FLUX gets low-rank adapters, peft's, and flash attention: cuDNN's backward fails there (torch 2.11, H200).
With HISTORY the allocator gives out and takes back some blocks before the networks are built, which decides
how later blocks are cut; a block that is not cut counts whole.

Prints JSON: torch.cuda.max_memory_allocated over two warm-up cycles and five measured ones, the peak of what
was asked for without the allocator's rounding, and the seconds of each measured cycle, of the warm-up and of
building.
"""

import contextlib
import json
import random
import sys
import time

import torch
import torch.nn.functional as F

from dmad_sweep.records.settings import Model
from dmad_sweep.workload.discriminator import DiscriminatorHead
from dmad_sweep.workload.models import build_denoiser

name, recipe, batch, pixels = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
history = int(sys.argv[5]) if len(sys.argv) > 5 else 0
device = torch.device("cuda")
if history:
    chance = random.Random(history)
    sizes = [chance.randrange(2**18, 2**26) for _ in range(20)]
    blocks = [torch.empty(size, dtype=torch.uint8, device=device) for size in sizes]
    chance.shuffle(blocks)
    while blocks:
        blocks.pop()
if name == "flux_schnell":
    torch.backends.cuda.enable_cudnn_sdp(False)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

# latent channels, pixels per latent, text, pooled text, head's channels, latents per cell of its map
channels, factor, text_shape, pooled_width, width, cell = {
    "sd15": (4, 8, (77, 768), None, 1280, 8),
    "sdxl": (4, 8, (77, 2048), 1280, 1280, 4),
    "pixart_sigma": (4, 8, (300, 4096), None, 1152, 2),
    "sana_1.6b": (32, 32, (300, 2304), None, 2240, 1),
    "flux_schnell": (16, 8, (512, 4096), 768, 3072, 2),
}[name]
side = pixels // factor
flow = name.startswith(("sana", "flux"))

betas = torch.linspace(0.00085**0.5, 0.012**0.5, 1000, dtype=torch.float64) ** 2
power = torch.cumprod(1 - betas, dim=0)


class Stopped(Exception):  # noqa: N818
    pass


def autocast():
    return torch.autocast("cuda", dtype=torch.bfloat16)


def call(net, x, t, text):
    """The network's prediction, every tensor in the type of its weights."""
    x, text, pooled = x.to(dtype_of[net]), text[0].to(dtype_of[net]), text[1]
    pooled = None if pooled is None else pooled.to(dtype_of[net])
    if name == "sd15":
        return net(x, t, text, return_dict=False)[0]
    if name == "sdxl":
        ids = (
            torch.tensor([pixels, pixels, 0, 0, pixels, pixels], device=device).expand(len(x), -1).to(x.dtype)
        )
        added = {"text_embeds": pooled, "time_ids": ids}
        return net(x, t, text, added_cond_kwargs=added, return_dict=False)[0]
    if name == "flux_schnell":
        n = side // 2
        packed = x.view(len(x), channels, n, 2, n, 2).permute(0, 2, 4, 1, 3, 5).reshape(len(x), n * n, -1)
        ids = torch.zeros(n, n, 3, device=device, dtype=x.dtype)
        ids[..., 1] += torch.arange(n, device=device)[:, None]
        ids[..., 2] += torch.arange(n, device=device)[None]
        out = net(
            packed,
            text,
            pooled,
            t / 1000,
            ids.view(-1, 3),
            torch.zeros(text_shape[0], 3, device=device, dtype=x.dtype),
            return_dict=False,
        )[0]
        return out.view(len(x), n, n, channels, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(x.shape)
    mask = text.new_ones(text.shape[:2])
    if name == "pixart_sigma":
        nothing = {"resolution": None, "aspect_ratio": None}
        out = net(x, text, t, nothing, encoder_attention_mask=mask, return_dict=False)[0]
        return out.chunk(2, dim=1)[0]
    return net(x, text, t, encoder_attention_mask=mask, return_dict=False)[0]


def predict(net, latents, t, text):
    with autocast():
        return call(net, latents, t, text).float()


def middle(net):
    blocks = None if name.startswith("sd") else net.transformer_blocks
    return net.mid_block if blocks is None else blocks[(len(blocks) - 1) // 2]


def as_map(output):
    if name.startswith("sd"):
        return output.float()
    n = side // cell
    return output.transpose(1, 2).reshape(-1, width, n, n).float()


def encode(net, latents, t, text):
    kept = []

    def stop(module, inputs, output):
        kept.append(output)
        raise Stopped

    handle = middle(net).register_forward_hook(stop)
    with contextlib.suppress(Stopped):
        predict(net, latents, t, text)
    handle.remove()
    return as_map(kept.pop())


def clip(parameters):
    torch.nn.utils.clip_grad_norm_(parameters, 10.0)


def at(values, t):
    return values[t].view(-1, 1, 1, 1)


def noised(x, n, t):
    level = at(noise_level, t)
    return (1 - level if flow else at(signal, t)) * x + level * n


def clean(x, n, t):
    if flow:
        return x - at(noise_level, t) * n
    return (x - at(noise_level, t) * n) / at(signal, t)


def wanted(x, n):
    return n - x if flow else n


def generate(z, text):
    t = torch.full((batch,), 999, device=device)
    return clean(z, predict(student, z, t, text), t)


def randn():
    return torch.randn(batch, channels, side, side, device=device)


def steps(high, low=0):
    return torch.randint(low, high, (batch,), device=device)


def build(dtype):
    net = build_denoiser(Model(name), dtype, device, 0)
    dtype_of[net] = dtype
    return net


building = time.perf_counter()
dtype_of = {}
if name == "flux_schnell":
    from peft import LoraConfig

    student = build(torch.bfloat16).requires_grad_(False)
    student.add_adapter(LoraConfig(r=64, lora_alpha=64, target_modules=["to_q", "to_k", "to_v", "to_out.0"]))
    student.train()
    for parameter in student.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
elif recipe == "sft":
    student = build(torch.float32).train()
else:
    teacher = build(torch.bfloat16).eval().requires_grad_(False)
    student, fake = build(torch.float32).train(), build(torch.float32).train()
    with device:
        head = DiscriminatorHead(width, -(-side // cell), -(-side // cell))
if flow:
    noise_level = (torch.arange(1000) / 1000).to(device)
else:
    signal, noise_level = power.sqrt().float().to(device), (1 - power).sqrt().float().to(device)


def adamw(*modules):
    trained = [p for m in modules for p in m.parameters() if p.requires_grad]
    return torch.optim.AdamW(trained, lr=1e-5, weight_decay=1e-2)


if recipe == "sft":
    student_optimizer = adamw(student)
elif recipe == "dmd2":
    student_optimizer, fake_optimizer = adamw(student), adamw(fake, head)
else:
    student_optimizer, fake_optimizer, head_optimizer = adamw(student), adamw(fake), adamw(head)


def sft_cycle(latents, text):
    n, t = randn(), steps(1000)
    loss = F.mse_loss(predict(student, noised(latents, n, t), t, text), wanted(latents, n))
    loss.backward()
    del loss
    clip(student.parameters())
    student_optimizer.step()
    student_optimizer.zero_grad()


def doubled(text):
    return tuple(None if c is None else torch.cat([torch.zeros_like(c), c]) for c in text)


def direction(x, noisy, t, fake_noise, teacher_noise):
    seen_fake, seen_real = clean(noisy, fake_noise, t), clean(noisy, teacher_noise, t)
    return torch.nan_to_num((seen_fake - seen_real) / (x - seen_real).abs().mean(dim=(1, 2, 3), keepdim=True))


def dmd2_student(latents, text):
    z, n, n2, t, t2 = randn(), randn(), randn(), steps(981, 20), steps(1000)
    fake.requires_grad_(False)
    head.requires_grad_(False)
    x = generate(z, text)
    with torch.no_grad():
        noisy = noised(x, n, t)
        fake_noise = predict(fake, noisy, t, text)
        both = doubled(text)
        negative, positive = predict(teacher, torch.cat([noisy, noisy]), torch.cat([t, t]), both).chunk(2)
        d = direction(x, noisy, t, fake_noise, negative + 1.75 * (positive - negative))
        del noisy, fake_noise, both, negative, positive
    matching = 0.5 * F.mse_loss(x, x.detach() - d)
    realness = head(encode(fake, noised(x, n2, t2), t2, text))
    loss = matching + 1e-3 * F.softplus(-realness).mean()
    loss.backward()
    del x, d, matching, realness, loss
    fake.requires_grad_(True)
    head.requires_grad_(True)
    clip(student.parameters())
    student_optimizer.step()
    student_optimizer.zero_grad()


def dmd2_fake(latents, text):
    z, n, n2, n3, t, t2, t3 = randn(), randn(), randn(), randn(), steps(1000), steps(1000), steps(1000)
    with torch.no_grad():
        x = generate(z, text)
    noisy, target = noised(x, n, t), wanted(x, n)
    denoising = F.mse_loss(predict(fake, noisy, t, text), target)
    real = head(encode(fake, noised(latents, n2, t2), t2, text))
    unreal = head(encode(fake, noised(x, n3, t3), t3, text))
    telling_apart = F.softplus(unreal).mean() + F.softplus(-real).mean()
    loss = denoising + 1e-2 * telling_apart
    loss.backward()
    del x, noisy, target, denoising, real, unreal, telling_apart, loss
    clip([*fake.parameters(), *head.parameters()])
    fake_optimizer.step()
    fake_optimizer.zero_grad()


def fastgen_student(latents, text):
    z, n, t = randn(), randn(), steps(981, 20)
    head.requires_grad_(False)
    x = generate(z, text)
    noisy = noised(x, n, t)
    with torch.no_grad():
        fake_noise = predict(fake, noisy, t, text)
        negative = predict(teacher, noisy, t, tuple(None if c is None else torch.zeros_like(c) for c in text))
    kept = []
    handle = middle(teacher).register_forward_hook(lambda m, i, output: kept.append(output))
    positive = predict(teacher, noisy, t, text)
    handle.remove()
    features = as_map(kept.pop())
    with torch.no_grad():
        d = direction(x, noisy, t, fake_noise, negative + 1.75 * (positive - negative))
    matching = 0.5 * F.mse_loss(x, x.detach() - d)
    loss = matching + 1e-3 * F.softplus(-head(features)).mean()
    loss.backward()
    del x, noisy, fake_noise, negative, positive, features, d, matching, loss
    head.requires_grad_(True)
    clip(student.parameters())
    student_optimizer.step()
    student_optimizer.zero_grad()


def fastgen_fake(latents, text):
    z, n, n2, n3, t, t2, t3 = randn(), randn(), randn(), randn(), steps(1000), steps(1000), steps(1000)
    with torch.no_grad():
        x = generate(z, text)
    noisy, target = noised(x, n, t), wanted(x, n)
    loss = F.mse_loss(predict(fake, noisy, t, text), target)
    with torch.no_grad():
        real = encode(teacher, noised(latents, n2, t2), t2, text)
        unreal = encode(teacher, noised(x, n3, t3), t3, text)
    head_loss = F.softplus(head(unreal)).mean() + F.softplus(-head(real)).mean()
    loss.backward()
    head_loss.backward()
    del x, noisy, target, loss, real, unreal, head_loss
    fake_optimizer.step()
    fake_optimizer.zero_grad()
    head_optimizer.step()
    head_optimizer.zero_grad()


turns = {
    "sft": [sft_cycle],
    "dmd2": [dmd2_student, dmd2_fake],
    "fastgen": [fastgen_student, fastgen_fake],
}[recipe]
torch.cuda.synchronize()
build_s = time.perf_counter() - building
warmup_s, seconds = 0.0, []
for cycle in range(7):
    spent = 0.0
    for turn in turns:
        pooled = None if pooled_width is None else torch.randn(batch, pooled_width, device=device)
        latents, text = randn(), (torch.randn(batch, *text_shape, device=device), pooled)
        torch.cuda.synchronize()
        started = time.perf_counter()
        turn(latents, text)
        torch.cuda.synchronize()
        spent += time.perf_counter() - started
    if cycle >= 2:
        seconds.append(spent)
    else:
        warmup_s += spent
peak = torch.cuda.max_memory_allocated()
requested = torch.cuda.memory_stats()["requested_bytes.all.peak"]
told = {"peak": peak, "requested": requested, "cycle_s": seconds, "warmup_s": warmup_s, "build_s": build_s}
print(json.dumps(told))
