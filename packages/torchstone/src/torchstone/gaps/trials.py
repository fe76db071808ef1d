"""Running two sides of many APIs: the reference on the plain CPU, then the provider's; then comparing them.

Not every API can be called with made-up arguments. APIs that touch processes, files or the network, or that
change process-wide settings, are left out by name.
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
"""Returns the function that implements an API on one side, or None if there is none."""

_ATTEMPTS = 44
"""The most argument sets that are tried before an API is given up."""

_NOT_CALLED = re.compile(
    r"torch\.(set_|use_|from_file|load|save|compile|hub|fork|wait|init|seed|manual_seed|get_file_path|import_ir"
    r"|cudnn_|miopen_|mkldnn_|fbgemm_|quantized_|_|vitals_|prepare_|parse_|merge_type|unify_type|typename"
    r"|autocast_|clear_autocast|read_vitals|while_loop|export|vmap|cond|thread_safe|nonzero_static|segment_reduce"
    r"|lobpcg|nn\.modules\.Transformer$|jit_|sym_|distributed\.|.*\bregister_)"
    r"|torch\.Tensor\.(__|share_memory|resize|set_|backward|register_|detach_|requires_grad_|retain_grad|storage"
    r"|untyped_storage|module_load|record_stream|data_ptr|const_data_ptr|map_|apply_|swap|ipu|xpu|mtia|hpu)"
    r"|torch\.nn\.Module\.(compile|register_|set_|ipu|xpu|mtia|share_memory)"
)
"""APIs about settings, files, processes or no values at all, unchecked native code, and slow ones."""

_ABOUT_THE_DEVICE = re.compile(r"is_\w+|device")
"""Properties in which the sides may differ by design, such as whether a tensor is on CUDA."""

_LAYERS = "torch.nn.modules"
"""The namespace of classes that can be constructed from numbers only."""


def callable_safely(api: Api) -> bool:
    """Whether ``api`` may be called with made-up arguments."""
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
"""APIs with CUDA in their name, and their counterparts for the CPU."""


def counterpart(api: Api) -> Api:
    """Return the API that the reference side calls for ``api``, nearly always ``api`` itself."""
    return replace(api, name=_COUNTERPARTS.get(api.name, api.name))


def function_of(api: Api, found: Any) -> Callable[..., Any] | None:
    """Return the function to call for ``api``, whose object is ``found``; for a property, its getter."""
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
    """Call each API on both sides with the first arguments that the reference side accepts.

    The reference runs on the CPU. The other side runs within ``inside()``, on ``device``, and its results
    must be on ``place`` (default: ``device``). ``takes_device``: pass the device by the API's own parameter.
    An API is left out if the reference accepts none of the arguments.
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
    """Yield the arguments to try, in order; with ``takes_device``, they include the device."""
    by_name = api.name in _COUNTERPARTS  # the name says the device
    return itertools.islice(argument_sets(api, device=takes_device and not by_name), _ATTEMPTS)


def accepted(
    api: Api, function: Callable[..., Any], takes_device: bool
) -> tuple[int, Arguments, Outcome] | None:
    """Return the number of the first arguments that ``function`` accepts, the arguments, and the outcome."""
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
    """Return the trial: how ``found`` differs from ``expected``; results must be on ``place``."""
    mode: Mode | None = "exact" if exact else "allclose"
    if "empty" in name:
        mode = None
    different = tuple(differences(expected, found, place, mode))
    return Trial(1, different, silent=not found.exception)


@contextmanager
def quiet() -> Iterator[None]:
    """Make every warning appear each time, on both sides; restore the random state and filters afterwards."""
    once = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            yield
    finally:
        torch.set_warn_always(once)
