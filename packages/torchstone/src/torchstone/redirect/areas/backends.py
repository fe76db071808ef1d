"""``torch.backends.cuda`` and ``torch.backends.cudnn``, deterministic settings, and modules of CUDA's own.

The flags are process-wide state of PyTorch that every build keeps: a script sets and reads them as ever, and
no target looks at them.
"""

from __future__ import annotations

from typing import Any

from ..rows import Row
from ..scope import Scope


class _NoPlans:
    """The plan cache of a device without cuFFT: empty, whatever its bound is set to."""

    def __init__(self) -> None:
        self.size = 0
        self.max_size = 0

    def clear(self) -> None:
        """There is nothing to clear."""


def _plan_cache(scope: Scope, self: Any, device: Any) -> _NoPlans:
    scope.ordinal(device)
    cache: _NoPlans = scope.settings.setdefault("cufft_plans", _NoPlans())
    return cache


_FLAG = "a flag that PyTorch keeps; the target does not look at it"
_FLAGS = (
    "torch.backends.cudnn.benchmark",
    "torch.backends.cudnn.deterministic",
    "torch.backends.cudnn.enabled",
    "torch.backends.cudnn.allow_tf32",
    "torch.backends.cuda.matmul",
    "torch.backends.cuda.enable_flash_sdp",
    "torch.backends.cuda.enable_mem_efficient_sdp",
    "torch.backends.cuda.enable_math_sdp",
)

ROWS = (
    Row(
        "torch.backends.cuda.is_built",
        "constant",
        "true for callers that are told of CUDA",
        lambda scope: True,
        by_caller=True,
    ),
    Row(
        "torch.backends.cuda.cuFFTPlanCacheManager.__getitem__",
        "noop",
        "an empty cache: no cuFFT",
        _plan_cache,
    ),
    *(Row(name, "noop", _FLAG) for name in _FLAGS),
    Row(
        "torch.backends.cudnn.is_available",
        "deliberate",
        "false: cuDNN is not there, and scripts then leave it alone",
    ),
    Row("torch.backends.cudnn.version", "deliberate", "None, as PyTorch says where cuDNN is not there"),
    Row("torch.use_deterministic_algorithms", "wraps", "unchanged: the setting is every device's"),
    Row(
        "torch.cuda.jiterator", "deliberate", "compiles CUDA C++ given as text, which only an NVIDIA GPU runs"
    ),
    Row("torch.cuda.sparse", "deliberate", "an empty module, kept by PyTorch for old pickles"),
    Row(
        "torch.cuda.tunable",
        "deliberate",
        "tunes the choice between cuBLAS kernels, which the target has not",
    ),
    Row(
        "torch.cuda.GreenContext",
        "deliberate",
        "a share of an NVIDIA GPU's processors; its factory raises PyTorch's error",
    ),
)
