"""Fourier transforms in one, two and more dimensions."""

from __future__ import annotations

import torch
from torch import Tensor

from .example import Example, model


def signal(*shape: int) -> Tensor:
    return torch.randn(shape or (3, 16))


def spectrum(*shape: int) -> Tensor:
    return torch.randn(shape or (3, 16), dtype=torch.complex64)


@model
def fft() -> Example:
    """1D complex FFT/IFFT"""
    return Example(torch.fft.fft, (spectrum(),))


@model
def ifft() -> Example:
    """1D complex FFT/IFFT"""
    return Example(torch.fft.ifft, (spectrum(),))


@model
def rfft() -> Example:
    """1D real FFT/IRFFT"""
    return Example(torch.fft.rfft, (signal(),))


@model
def irfft() -> Example:
    """1D real FFT/IRFFT"""
    return Example(torch.fft.irfft, (spectrum(3, 9),))


@model
def hfft() -> Example:
    """Hermitian FFT"""
    return Example(torch.fft.hfft, (spectrum(3, 9),))


@model
def ihfft() -> Example:
    """Hermitian FFT"""
    return Example(torch.fft.ihfft, (signal(),))


@model
def fft2() -> Example:
    """2D complex FFT/IFFT"""
    return Example(torch.fft.fft2, (spectrum(2, 6, 8),))


@model
def ifft2() -> Example:
    """2D complex FFT/IFFT"""
    return Example(torch.fft.ifft2, (spectrum(2, 6, 8),))


@model
def rfft2() -> Example:
    """2D real FFT/IRFFT"""
    return Example(torch.fft.rfft2, (signal(2, 6, 8),))


@model
def irfft2() -> Example:
    """2D real FFT/IRFFT"""
    return Example(torch.fft.irfft2, (spectrum(2, 6, 5),))


@model
def fftn() -> Example:
    """N-D complex FFT/IFFT"""
    return Example(torch.fft.fftn, (spectrum(4, 6, 5),))


@model
def ifftn() -> Example:
    """N-D complex FFT/IFFT"""
    return Example(torch.fft.ifftn, (spectrum(4, 6, 5),))


@model
def rfftn() -> Example:
    """N-D real FFT/IRFFT"""
    return Example(torch.fft.rfftn, (signal(4, 6, 8),))


@model
def irfftn() -> Example:
    """N-D real FFT/IRFFT"""
    return Example(torch.fft.irfftn, (spectrum(4, 6, 5),))


@model
def fftshift() -> Example:
    """Frequency domain shifting"""
    return Example(torch.fft.fftshift, (spectrum(3, 7),))


@model
def ifftshift() -> Example:
    """Frequency domain shifting"""
    return Example(torch.fft.ifftshift, (spectrum(3, 7),))
