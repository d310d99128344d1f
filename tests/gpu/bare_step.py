"""A step as a person would write it: `python bare_step.py RECIPE BATCH SIDE`, SD1.5 in bf16 autocast.

Nothing of the tool but the networks is imported. Prints JSON: torch.cuda.max_memory_allocated over two
warm-up cycles and five measured ones, and the seconds of each measured cycle.
"""

import contextlib
import json
import sys
import time

import torch
import torch.nn.functional as F

from dmad_sweep.records.settings import Model
from dmad_sweep.workload.discriminator import DiscriminatorHead
from dmad_sweep.workload.models import build_unet

recipe, batch, side = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) // 8
device = torch.device("cuda")
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

betas = torch.linspace(0.00085**0.5, 0.012**0.5, 1000, dtype=torch.float64) ** 2
power = torch.cumprod(1 - betas, dim=0)


class Stopped(Exception):  # noqa: N818
    pass


def autocast():
    return torch.autocast("cuda", dtype=torch.bfloat16)


def predict(unet, latents, t, text):
    with autocast():
        return unet(latents.to(unet.dtype), t, text.to(unet.dtype), return_dict=False)[0].float()


def encode(unet, latents, t, text):
    kept = []

    def stop(module, inputs, output):
        kept.append(output)
        raise Stopped

    handle = unet.mid_block.register_forward_hook(stop)
    with contextlib.suppress(Stopped):
        predict(unet, latents, t, text)
    handle.remove()
    return kept.pop().float()


def clip(parameters):
    torch.nn.utils.clip_grad_norm_(parameters, 10.0)


def at(values, t):
    return values[t].view(-1, 1, 1, 1)


def noised(x, n, t):
    return at(signal, t) * x + at(noise_level, t) * n


def clean(x, n, t):
    return (x - at(noise_level, t) * n) / at(signal, t)


def generate(z, text):
    t = torch.full((batch,), 999, device=device)
    return clean(z, predict(student, z, t, text), t)


def randn():
    return torch.randn(batch, 4, side, side, device=device)


def steps(high, low=0):
    return torch.randint(low, high, (batch,), device=device)


if recipe == "sft":
    student = build_unet(Model("sd15"), torch.float32, device, 0).train()
else:
    teacher = build_unet(Model("sd15"), torch.bfloat16, device, 0).eval().requires_grad_(False)
    student = build_unet(Model("sd15"), torch.float32, device, 0).train()
    fake = build_unet(Model("sd15"), torch.float32, device, 0).train()
    with device:
        head = DiscriminatorHead(1280, -(-side // 8), -(-side // 8))
signal, noise_level = power.sqrt().float().to(device), (1 - power).sqrt().float().to(device)


def adamw(*modules):
    return torch.optim.AdamW([p for m in modules for p in m.parameters()], lr=1e-5, weight_decay=1e-2)


if recipe == "sft":
    student_optimizer = adamw(student)
elif recipe == "dmd2":
    student_optimizer, fake_optimizer = adamw(student), adamw(fake, head)
else:
    student_optimizer, fake_optimizer, head_optimizer = adamw(student), adamw(fake), adamw(head)


def sft_cycle(latents, text):
    n, t = randn(), steps(1000)
    loss = F.mse_loss(predict(student, noised(latents, n, t), t, text), n)
    loss.backward()
    del loss
    clip(student.parameters())
    student_optimizer.step()
    student_optimizer.zero_grad()


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
        both = torch.cat([torch.zeros_like(text), text])
        negative, positive = predict(teacher, torch.cat([noisy, noisy]), torch.cat([t, t]), both).chunk(2)
        d = direction(x, noisy, t, fake_noise, negative + 1.75 * (positive - negative))
        del noisy, fake_noise, both, negative, positive
    loss = 0.5 * F.mse_loss(x, x.detach() - d)
    loss = loss + 1e-3 * F.softplus(-head(encode(fake, noised(x, n2, t2), t2, text))).mean()
    loss.backward()
    del x, d, loss
    fake.requires_grad_(True)
    head.requires_grad_(True)
    clip(student.parameters())
    student_optimizer.step()
    student_optimizer.zero_grad()


def dmd2_fake(latents, text):
    z, n, n2, n3, t, t2, t3 = randn(), randn(), randn(), randn(), steps(1000), steps(1000), steps(1000)
    with torch.no_grad():
        x = generate(z, text)
    noisy = noised(x, n, t)
    loss = F.mse_loss(predict(fake, noisy, t, text), n)
    real = head(encode(fake, noised(latents, n2, t2), t2, text))
    unreal = head(encode(fake, noised(x, n3, t3), t3, text))
    loss = loss + 1e-2 * (F.softplus(unreal).mean() + F.softplus(-real).mean())
    loss.backward()
    del x, noisy, loss, real, unreal
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
        negative = predict(teacher, noisy, t, torch.zeros_like(text))
    kept = []
    handle = teacher.mid_block.register_forward_hook(lambda m, i, output: kept.append(output))
    positive = predict(teacher, noisy, t, text)
    handle.remove()
    features = kept.pop().float()
    with torch.no_grad():
        d = direction(x, noisy, t, fake_noise, negative + 1.75 * (positive - negative))
    loss = 0.5 * F.mse_loss(x, x.detach() - d) + 1e-3 * F.softplus(-head(features)).mean()
    loss.backward()
    del x, noisy, fake_noise, negative, positive, features, d, loss
    head.requires_grad_(True)
    clip(student.parameters())
    student_optimizer.step()
    student_optimizer.zero_grad()


def fastgen_fake(latents, text):
    z, n, n2, n3, t, t2, t3 = randn(), randn(), randn(), randn(), steps(1000), steps(1000), steps(1000)
    with torch.no_grad():
        x = generate(z, text)
    noisy = noised(x, n, t)
    loss = F.mse_loss(predict(fake, noisy, t, text), n)
    with torch.no_grad():
        real = encode(teacher, noised(latents, n2, t2), t2, text)
        unreal = encode(teacher, noised(x, n3, t3), t3, text)
    head_loss = F.softplus(head(unreal)).mean() + F.softplus(-head(real)).mean()
    loss.backward()
    head_loss.backward()
    del x, noisy, loss, real, unreal, head_loss
    fake_optimizer.step()
    fake_optimizer.zero_grad()
    head_optimizer.step()
    head_optimizer.zero_grad()


turns = {
    "sft": [sft_cycle],
    "dmd2": [dmd2_student, dmd2_fake],
    "fastgen": [fastgen_student, fastgen_fake],
}[recipe]
seconds = []
for cycle in range(7):
    spent = 0.0
    for turn in turns:
        latents, text = randn(), torch.randn(batch, 77, 768, device=device)
        torch.cuda.synchronize()
        started = time.perf_counter()
        turn(latents, text)
        torch.cuda.synchronize()
        spent += time.perf_counter() - started
    if cycle >= 2:
        seconds.append(spent)
print(json.dumps({"peak": torch.cuda.max_memory_allocated(), "cycle_s": seconds}))
