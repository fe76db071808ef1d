"""Complex numbers: parts, polar form, arithmetic and elementary functions."""

from __future__ import annotations

import torch
from torch import Tensor

from .example import Example, model


def numbers() -> Tensor:
    return torch.randn(3, 4, dtype=torch.complex64)


@model
def complex_() -> Example:
    """Create complex from real/imag"""
    return Example(torch.complex, (torch.randn(3, 4), torch.randn(3, 4)))


@model
def real() -> Example:
    """Extract components"""
    return Example(torch.real, (numbers(),))


@model
def imag() -> Example:
    """Extract components"""
    return Example(torch.imag, (numbers(),))


@model
def conj() -> Example:
    """Complex conjugate"""
    return Example(torch.conj, (numbers(),))


@model
def angle() -> Example:
    """Polar coordinates"""
    return Example(torch.angle, (numbers(),))


@model
def polar() -> Example:
    """Polar coordinates"""
    return Example(torch.polar, (torch.rand(3, 4), torch.randn(3, 4)))


@model
def complex_abs() -> Example:
    """Arithmetic"""
    return Example(torch.abs, (numbers(),))


@model
def complex_mul() -> Example:
    """Arithmetic"""
    return Example(torch.mul, (numbers(), numbers()))


@model
def complex_add() -> Example:
    """Arithmetic"""
    return Example(torch.add, (numbers(), numbers()))


@model
def complex_exp() -> Example:
    """Transcendentals"""
    return Example(torch.exp, (numbers(),))


@model
def complex_log() -> Example:
    """Transcendentals"""
    return Example(torch.log, (numbers(),))


@model
def complex_sqrt() -> Example:
    """Transcendentals"""
    return Example(torch.sqrt, (numbers(),))
