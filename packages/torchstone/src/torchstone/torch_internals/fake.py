"""Fake tensors, which carry shape, dtype and strides and have no values."""

from __future__ import annotations

from torch._subclasses import FakeTensor, FakeTensorMode

from .probing import Internal

__all__ = ["LOGGER", "DataDependentOutputException", "FakeTensor", "FakeTensorMode", "detect_fake_mode"]

LOGGER = "torch._subclasses.fake_tensor"

detect_fake_mode = Internal("torch._guards.detect_fake_mode", "subgraphs of control flow")
DataDependentOutputException = Internal(
    "torch._subclasses.fake_tensor.DataDependentOutputException", "tracing derivatives that look at values"
)
