"""Which calling code is told that CUDA is available.

The answer of ``torch.cuda.is_available()`` and similar functions depends on the caller. The redirected script
and packages whose CUDA path is plain PyTorch are told yes, so their calls are redirected. Packages that would
load an NVIDIA driver or compiled CUDA code are told the truth. The rules are a reviewed table, which
``redirected(trust={...})`` extends for one scope. A package that is not listed is told the truth, unless it
is the user's own code: a module that is neither in the standard library nor in ``site-packages``.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ..torch_internals.redirection import ASKS_FOR_ITS_CALLER, STREAMS_OF_COMPILED_CODE


@dataclass(frozen=True)
class CallerRule:
    """Whether the modules under ``package`` (a dotted prefix) are told that CUDA is available, and why."""

    package: str
    sees_cuda: bool
    reason: str


def _rules(sees_cuda: bool, reason: str, packages: str) -> tuple[CallerRule, ...]:
    return tuple(CallerRule(package, sees_cuda, reason) for package in packages.split())


TABLE: tuple[CallerRule, ...] = (
    *_rules(
        True, "picks a device, then calls PyTorch only", "accelerate transformers diffusers datasets evaluate"
    ),
    *_rules(
        True, "training loops in plain PyTorch", "lightning pytorch_lightning lightning_fabric fastai ignite"
    ),
    *_rules(
        True, "models in plain PyTorch", "timm segmentation_models_pytorch sentence_transformers open_clip"
    ),
    *_rules(
        True, "wraps modules and optimizers in plain PyTorch", "peft trl ema_pytorch lion_pytorch optimum"
    ),
    *_rules(True, "metrics and losses in plain PyTorch", "torchmetrics lpips pytorch_metric_learning"),
    *_rules(
        True,
        "transforms and layers in plain PyTorch",
        "kornia monai einops torchdiffeq gpytorch botorch pyro",
    ),
    *_rules(
        True, "device picking around PyTorch models", "ultralytics whisper skorch stable_baselines3 tianshou"
    ),
    *_rules(
        False,
        "compiles kernels for an NVIDIA GPU",
        "triton tilelang cutlass pycuda numba cupy cupyx taichi warp",
    ),
    *_rules(
        False,
        "loads compiled CUDA kernels",
        "flash_attn flash_attn_interface flashinfer bitsandbytes xformers apex transformer_engine deepspeed "
        "causal_conv1d mamba_ssm auto_gptq gptqmodel awq awq_ext exllamav2 vllm sglang spconv "
        "MinkowskiEngine torch_scatter torch_sparse torch_cluster pyg_lib pytorch3d nvdiffrast tinycudann "
        "detectron2 mmcv "
        "fused_dense_lib natten sageattention grouped_gemm megablocks fbgemm_gpu torchao torchcodec",
    ),
    *_rules(
        False,
        "loads an NVIDIA driver or library",
        "pynvml nvidia nvidia_smi cuda cudf cuml cugraph rmm dask_cuda pynvjitlink tensorrt torch_tensorrt "
        "tensorrt_llm torch2trt nvtx modelopt dali onnxruntime ray horovod",
    ),
    *_rules(False, "brings its own device runtime", "jax jaxlib tensorflow torch_xla torchax mlx"),
    *_rules(
        False, "compiled operators of its own ask for the real device", "torchvision torchaudio torchtext"
    ),
    CallerRule("torch.nn.parallel", True, "spreads work over CUDA devices, by calls that are redirected"),
    CallerRule(STREAMS_OF_COMPILED_CODE, True, "runs compiled code's streams, by calls that are redirected"),
    CallerRule("torch", False, "PyTorch must know what it really runs on"),
    CallerRule("torchstone", False, "must know what it really runs on"),
    CallerRule("optest", False, "must know what it really runs on"),
)

_LIBRARIES = tuple(
    {str(Path(path)) for name, path in sysconfig.get_paths().items() if name in ("stdlib", "platstdlib")}
)
_PASSED_THROUGH = (
    *("torch.overrides", "torch.accelerator", "torch.random", "torch.testing", "torch.storage"),
    "torch.library",
    *ASKS_FOR_ITS_CALLER,
)
"""Parts of PyTorch that ask on behalf of their own caller, so the search goes on to the next outer frame."""
_INSTALLED = ("site-packages", "dist-packages")


class Callers:
    """The rules of one scope: the table, and the user's additions, which take precedence."""

    def __init__(self, trust: Iterable[str] | Mapping[str, bool] | None = None) -> None:
        extra = trust if isinstance(trust, Mapping) else dict.fromkeys(trust or (), True)
        own = {name: CallerRule(name, sees, "given by the user") for name, sees in extra.items()}
        self._rules = {rule.package: rule for rule in TABLE} | own
        self._answers: dict[str, bool | None] = {}

    def see_cuda(self) -> bool:
        """Whether the calling code is told that CUDA is available.

        Frames of this package, of PyTorch's modes and of the standard library are skipped. If a thread has no
        other frames, the answer is yes.
        """
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            try:
                answer = self._answers[module]
            except KeyError:
                answer = self._answers[module] = self._decide(module, frame.f_code.co_filename)
            if answer is not None:
                return answer
            frame = frame.f_back
        return True

    def rule(self, module: str) -> CallerRule | None:
        """The rule with the longest prefix of the dotted name ``module``, if there is one."""
        while module:
            if module in self._rules:
                return self._rules[module]
            module = module.rpartition(".")[0]
        return None

    def _decide(self, module: str, file: str) -> bool | None:
        if module.startswith(__package__) or module.startswith(_PASSED_THROUGH):
            return None
        rule = self.rule(module)
        if rule is not None:
            return rule.sees_cuda
        if is_installed(file):
            return False
        return None if is_library(file) else True


def is_installed(file: str) -> bool:
    """Whether a source file belongs to an installed package."""
    return any(part in file for part in _INSTALLED)


@functools.cache
def is_library(file: str) -> bool:
    """Whether a source file belongs to the standard library (frozen modules included)."""
    if file.startswith("<frozen"):
        return True
    return file.startswith(_LIBRARIES) and not is_installed(file)


def user_frame() -> FrameType | None:
    """The innermost frame that belongs neither to PyTorch, to Torchstone nor to the standard library."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return frame


def user_depth() -> int:
    """Return the ``stacklevel`` of :func:`user_frame` for a :func:`warnings.warn` in the caller's caller."""
    depth, frame = 0, sys._getframe(1)
    found: FrameType | None = frame
    while found is not None and _is_ours(found):
        depth, found = depth + 1, found.f_back
    return max(depth, 1)


def _is_ours(frame: FrameType) -> bool:
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    return package in ("torch", "torchstone") or is_library(frame.f_code.co_filename)
