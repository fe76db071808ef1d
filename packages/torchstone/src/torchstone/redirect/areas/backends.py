"""``torch.backends.cuda`` and ``torch.backends.cudnn``, deterministic settings, and modules only for CUDA.

The flags are process-wide state that every build of PyTorch keeps: a script can set and read them as usual,
but no target uses them.
"""

from __future__ import annotations

from typing import Any

from ...torch_internals.devices import GET_MATH_ATTENTION, SET_MATH_ATTENTION
from ..rows import Row
from ..scope import Scope


class _NoPlans:
    """The plan cache of a device without cuFFT: always empty, whatever its maximum size is set to."""

    def __init__(self) -> None:
        self.size = 0
        self.max_size = 0

    def clear(self) -> None:
        """Do nothing: the cache is always empty."""


def _plan_cache(scope: Scope, self: Any, device: Any) -> _NoPlans:
    scope.ordinal(device)
    cache: _NoPlans = scope.settings.setdefault("cufft_plans", _NoPlans())
    return cache


def _set_math(scope: Scope, enabled: bool) -> None:
    """Only keep the flag: plain operators replace the kernels that the target lacks, so they stay on."""
    if not isinstance(enabled, bool):
        raise TypeError(f"set_sdp_use_math expects a bool, but got {type(enabled).__name__}")
    scope.settings["math_sdp"] = enabled


def _around_math(original: Any) -> Any:
    def implementation(scope: Scope) -> bool:
        return bool(scope.settings.get("math_sdp", original()))

    return implementation


def _around_library(name: str) -> Any:
    """Handle a preferred CUDA library: if it is missing, tell the policy and keep the current one."""

    def around(original: Any) -> Any:
        def implementation(scope: Scope, backend: Any = None) -> Any:
            try:
                return original(backend)
            except RuntimeError as error:
                if "has not been compiled" not in str(error):
                    raise
                scope.policy.meaningless(
                    f"torch.backends.cuda.{name}", f"{scope.target.type} has no {backend}; it uses its own"
                )
                return original()

        return implementation

    return around


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
    "torch.backends.cuda.enable_cudnn_sdp",
    *(f"torch.backends.cuda.{kernel}_sdp_enabled" for kernel in ("flash", "mem_efficient", "math", "cudnn")),
    "torch.backends.cudnn.flags",
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
    *(
        Row(
            f"torch.backends.cuda.{name}",
            "noop",
            "the target uses its own library, by policy",
            around=_around_library(name),
        )
        for name in ("preferred_linalg_library", "preferred_blas_library")
    ),
    Row(
        SET_MATH_ATTENTION, "modified", "the flag is kept; plain operators do what a kernel cannot", _set_math
    ),
    Row(GET_MATH_ATTENTION, "modified", "the flag that was set", around=_around_math),
    *(
        Row(name, "wraps", "the target's own kernel, or plain operators, compute in place of CUDA's kernels")
        for name in ("torch.nn.attention.sdpa_kernel", "torch.backends.cuda.sdp_kernel")
    ),
    Row("torch.backends.cuda.cufft_plan_cache", "noop", "an empty cache: no cuFFT"),
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
