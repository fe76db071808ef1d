"""Random numbers of several CUDA devices on one CPU: each device draws from a generator of its own.

``cuda:0`` draws from the CPU's default generator, so that a script gets the same numbers as on the CPU. Any
other device has its own generator, whose state replaces that of the default generator during a call.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch

from ..torch_internals.redirection import drawing_operators
from . import places
from .scope import current_scope, told_of_cuda

_Generator = type(torch.default_generator)


class CudaGenerator(_Generator):  # type: ignore[misc, valid-type]
    """The generator of a CUDA device, which draws the same numbers as a CPU generator."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __new__(cls, index: int) -> CudaGenerator:
        found: CudaGenerator = super().__new__(cls)
        return found

    @property
    def device(self) -> torch.device:
        scope = current_scope()
        told = scope is not None and scope.tracks and told_of_cuda(scope)
        return places.cuda(self.index) if told else places.device_of(places.HOST)


_LOCK = threading.RLock()
_WITHOUT_GENERATOR = (
    *("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout"),
    *("feature_alpha_dropout", "gumbel_softmax", "multi_head_attention_forward"),
    *("scaled_dot_product_attention", "lstm", "gru", "rnn_tanh", "rnn_relu"),
    *("fractional_max_pool2d_with_indices", "fractional_max_pool3d_with_indices", "sparse_"),
    *("xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "trunc_normal_"),
)
"""Functions that draw random numbers although their schema has no generator."""

_generators: dict[int, torch.Generator] = {}


def generator_of(index: int) -> torch.Generator:
    """Return the generator of a CUDA device."""
    if index == 0:
        return torch.default_generator
    if index not in _generators:
        _generators[index] = CudaGenerator(index).manual_seed(torch.default_generator.initial_seed())
    return _generators[index]


def check(generator: Any, place: int) -> None:
    """Raise ``RuntimeError``, with PyTorch's message, if the generator is for another type of device."""
    if generator is None or generator is torch.default_generator:  # which cuda:0 uses, too
        return
    found = "cuda" if isinstance(generator, CudaGenerator) else "cpu"
    wanted = "cpu" if place == places.HOST else "cuda"
    if found != wanted:
        raise RuntimeError(f"Expected a '{wanted}' device type for generator but found '{found}'")


def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], index: int) -> Any:
    """Return ``func(*args, **kwargs)``, drawing from the generator of the CUDA device ``index``."""
    if index <= 0 or getattr(func, "__name__", "") not in _drawing():
        return func(*args, **kwargs)
    own, shared = generator_of(index), torch.default_generator
    with _LOCK:
        before = shared.get_state()
        shared.set_state(own.get_state())
        try:
            return func(*args, **kwargs)
        finally:
            own.set_state(shared.get_state())
            shared.set_state(before)


@functools.cache
def _drawing() -> frozenset[str]:
    """Return the names of the functions that draw random numbers, as PyTorch's schemas say."""
    drawing = drawing_operators()
    return frozenset({*drawing, *(f"{name}_" for name in drawing), *_WITHOUT_GENERATOR})
