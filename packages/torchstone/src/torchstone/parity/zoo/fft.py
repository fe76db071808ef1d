"""Fourier transforms in one, two and more dimensions."""

from __future__ import annotations

import torch

from .example import Example, register

REAL, COMPLEX = torch.float32, torch.complex64

_TRANSFORMS: dict[str, dict[str, tuple[torch.dtype, tuple[int, ...]]]] = {
    "1D complex FFT/IFFT": {"fft": (COMPLEX, (3, 16)), "ifft": (COMPLEX, (3, 16))},
    "1D real FFT/IRFFT": {"rfft": (REAL, (3, 16)), "irfft": (COMPLEX, (3, 9))},
    "Hermitian FFT": {"hfft": (COMPLEX, (3, 9)), "ihfft": (REAL, (3, 16))},
    "2D complex FFT/IFFT": {"fft2": (COMPLEX, (2, 6, 8)), "ifft2": (COMPLEX, (2, 6, 8))},
    "2D real FFT/IRFFT": {"rfft2": (REAL, (2, 6, 8)), "irfft2": (COMPLEX, (2, 6, 5))},
    "N-D complex FFT/IFFT": {"fftn": (COMPLEX, (4, 6, 5)), "ifftn": (COMPLEX, (4, 6, 5))},
    "N-D real FFT/IRFFT": {"rfftn": (REAL, (4, 6, 8)), "irfftn": (COMPLEX, (4, 6, 5))},
    "Frequency domain shifting": {"fftshift": (COMPLEX, (3, 7)), "ifftshift": (COMPLEX, (3, 7))},
}
"""The functions of ``torch.fft`` by kind of transform, with the dtype and shape of their input."""


def _transform(name: str, documentation: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    function = getattr(torch.fft, name)
    register(__name__, name, documentation, lambda: Example(function, (torch.randn(shape, dtype=dtype),)))


for _documentation, _transforms in _TRANSFORMS.items():
    for _name, (_dtype, _shape) in _transforms.items():
        _transform(_name, _documentation, _dtype, _shape)
