"""Measure what few-step diffusion distillation costs in memory and time, one variable at a time."""

__version__ = "0.1.0"
