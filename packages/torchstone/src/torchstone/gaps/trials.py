"""Runs two sides of many APIs: the reference on plain CPU first, the provider's side next, then compares.

Not everything may be called with made-up arguments: what touches processes, files or the network, or changes
a setting of the process, is left out by name.
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from optest.core.comparison import Mode

from .answers import Trial
from .arguments import Arguments, argument_sets
from .outcomes import Outcome, differences, failed, run
from .surface import Api

Side = Callable[[Api], Callable[..., Any] | None]
"""The function that stands for an API on one side; None if there is none."""

_ATTEMPTS = 44
"""Argument sets that the reference side may refuse before an API is left untried."""

_NOT_CALLED = re.compile(
    r"torch\.(set_|use_|from_file|load|save|compile|hub|fork|wait|init|seed|manual_seed|get_file_path|import_ir"
    r"|cudnn_|miopen_|mkldnn_|fbgemm_|quantized_|_|vitals_|prepare_|parse_|merge_type|unify_type|typename"
    r"|autocast_|clear_autocast|read_vitals|while_loop|export|vmap|cond|thread_safe|nonzero_static|segment_reduce"
    r"|lobpcg|nn\.modules\.Transformer$|jit_|sym_|distributed\.|.*\bregister_)"
    r"|torch\.Tensor\.(__|share_memory|resize|set_|backward|register_|detach_|requires_grad_|retain_grad|storage"
    r"|untyped_storage|module_load|record_stream|data_ptr|const_data_ptr|map_|apply_|swap|ipu|xpu|mtia|hpu)"
    r"|torch\.nn\.Module\.(compile|register_|set_|ipu|xpu|mtia|share_memory)"
)
"""Settings, files, processes, native entry points without checks, what is about no values, what is slow."""

_ABOUT_THE_DEVICE = re.compile(r"is_\w+|device")
"""Properties in which the sides may differ by design: whether a tensor that was sent to CUDA says so."""

_LAYERS = "torch.nn.modules"
"""The classes that may be made from numbers alone."""


def callable_safely(api: Api) -> bool:
    """Whether ``api`` may be called with arguments that were made up."""
    if not (api.signatures or api.kind == "property") or _NOT_CALLED.match(api.name):
        return False
    match api.kind:
        case "function":
            return True
        case "class":
            return api.namespace == _LAYERS
        case "property":
            return api.namespace == "torch.Tensor" and not _ABOUT_THE_DEVICE.fullmatch(api.leaf)
        case "method":
            return api.namespace in ("torch.Tensor", "torch.nn.Module")
    return False


_COUNTERPARTS = {"torch.Tensor.cuda": "torch.Tensor.cpu", "torch.nn.Module.cuda": "torch.nn.Module.cpu"}
"""What says CUDA by its name, and what says CPU."""


def counterpart(api: Api) -> Api:
    """The API that the reference side calls in place of ``api``: nearly always itself."""
    return replace(api, name=_COUNTERPARTS.get(api.name, api.name))


def function_of(api: Api, found: Any) -> Callable[..., Any] | None:
    """What a call of ``api`` calls where ``found`` stands for it: for a property, what reads it."""
    return getattr(found, "__get__", None) if api.kind == "property" else found


def run_trials(
    apis: Iterable[Api],
    reference: Side,
    own: Side,
    device: str,
    *,
    inside: Callable[[], AbstractContextManager[Any]] = nullcontext,
    place: str | None = None,
    exact: bool = True,
    takes_device: bool = False,
) -> Mapping[str, Trial]:
    """Calls each API on both sides with the first arguments that the reference side takes.

    The reference runs on the CPU; the other side within ``inside()``, on ``device``, where results must lie
    on ``place`` (default: ``device``). ``takes_device`` passes the device by the API's own parameter. An API
    without arguments that the reference takes is left out.
    """
    expected: dict[str, tuple[Arguments, Outcome]] = {}
    chosen = [api for api in apis if callable_safely(api)]
    with quiet():
        for api in chosen:
            function = function_of(api, reference(api if device == "cpu" else counterpart(api)))
            if function is not None and (found := accepted(api, function, takes_device)) is not None:
                expected[api.name] = found[1:]
        with inside():
            outcomes = {
                api.name: _outcome(function_of(api, own(api)), expected[api.name][0], device)
                for api in chosen
                if api.name in expected
            }
    return {
        name: trial_of(name, expected[name][1], outcome, place or device, exact=exact)
        for name, outcome in outcomes.items()
    }


def trial_arguments(api: Api, takes_device: bool) -> Iterator[Arguments]:
    """What an API is tried with, in this order; ``takes_device`` passes the device by its own parameter."""
    by_name = api.name in _COUNTERPARTS  # which says the device
    return itertools.islice(argument_sets(api, device=takes_device and not by_name), _ATTEMPTS)


def accepted(
    api: Api, function: Callable[..., Any], takes_device: bool
) -> tuple[int, Arguments, Outcome] | None:
    """The first arguments that the reference side takes, with their number, and what it does with them."""
    for attempt, arguments in enumerate(trial_arguments(api, takes_device)):
        outcome = run(function, arguments, "cpu")
        if not outcome.exception:
            return attempt, arguments, outcome
    return None


def _outcome(function: Callable[..., Any] | None, arguments: Arguments, device: str) -> Outcome:
    if function is None:
        return failed("AttributeError", "there is no such name")
    return run(function, arguments, device)


def trial_of(name: str, expected: Outcome, found: Outcome, place: str, *, exact: bool) -> Trial:
    """How ``found`` differs from ``expected``, where results must lie on ``place``."""
    mode: Mode | None = "exact" if exact else "allclose"
    if "empty" in name:
        mode = None
    different = tuple(differences(expected, found, place, mode))
    return Trial(1, different, silent=not found.exception)


@contextmanager
def quiet() -> Iterator[None]:
    """Every warning comes each time, on both sides; the random state and the filters stay as they were."""
    once = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            yield
    finally:
        torch.set_warn_always(once)
