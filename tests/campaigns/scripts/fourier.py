# run:
"""Transforms, a convolution by FFT, windows and spectrograms made on the device."""

import math

import torch

t = torch.arange(64, device="cuda") / 64
signal = torch.sin(2 * math.pi * 5 * t) + 0.5 * torch.cos(2 * math.pi * 12 * t)
spectrum = torch.fft.rfft(signal)
assert spectrum.is_cuda
assert spectrum.dtype is torch.complex64
assert sorted(spectrum.abs().topk(2).indices.tolist()) == [5, 12]
torch.testing.assert_close(torch.fft.irfft(spectrum, n=64), signal)
assert torch.fft.rfftfreq(64, device="cuda").device == signal.device
kernel = torch.tensor([0.25, 0.5, 0.25], device="cuda")
full = torch.fft.irfft(torch.fft.rfft(signal, 128) * torch.fft.rfft(kernel, 128), 128)[:66]
direct = torch.nn.functional.conv1d(signal.view(1, 1, -1), kernel.flip(0).view(1, 1, -1), padding=2).view(-1)
torch.testing.assert_close(full, direct, rtol=1e-4, atol=1e-5)
spec = torch.stft(signal, 16, hop_length=8, window=torch.hann_window(16, device="cuda"), return_complex=True)
assert spec.shape == (9, 9)
assert spec.is_cuda
back = torch.istft(spec, 16, hop_length=8, window=torch.hann_window(16, device="cuda"), length=64)
torch.testing.assert_close(back, signal, rtol=1e-4, atol=1e-4)
try:
    torch.stft(signal, 16, window=torch.hann_window(16), return_complex=True)
except RuntimeError as error:
    assert "window" in str(error) or "same device" in str(error)
else:
    raise AssertionError("a window on the CPU was accepted")
