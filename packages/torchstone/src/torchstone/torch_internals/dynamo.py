"""Dynamo and AOTAutograd, which trace the code that ``torch.compile`` compiles."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, Node

from .patches import Members, Patch, functions
from .probing import Internal

_COMPILE = "torch.compile"
TRACE_RULES = "torch._dynamo.trace_rules"

aot_autograd = Internal("torch._dynamo.backends.common.aot_autograd", _COMPILE)
min_cut_partition = Internal(
    "torch._functorch.partitioners.min_cut_rematerialization_partition", "torch.compile with gradients"
)
_ALIASES = "outputs of torch.compile that are views"
OutputType = Internal("torch._functorch._aot_autograd.schemas.OutputType", _ALIASES)
SubclassCreationMeta = Internal("torch._functorch._aot_autograd.schemas.SubclassCreationMeta", _ALIASES)
TracingContext = Internal("torch._guards.TracingContext", _COMPILE)
config = Internal("torch._dynamo.config", _COMPILE)
convert_frame = Internal("torch._dynamo.convert_frame", _COMPILE)
_innermost_backend = Internal("torch._dynamo.eval_frame.innermost_backend", _COMPILE)
_polyfilled_ids = Internal(f"{TRACE_RULES}._polyfilled_function_ids", _COMPILE)
_PolyfilledFunctionVariable = Internal("torch._dynamo.variables.PolyfilledFunctionVariable", _COMPILE)
_AutogradFunctionFactory = Internal(
    "torch._functorch._aot_autograd.runtime_wrappers._AOTDispatchAutogradFunctionFactory",
    "refusing second derivatives of compiled functions",
)
VariableTracker = Internal("torch._dynamo.variables.base.VariableTracker", "redirection in compiled code")
_InGraphFunction = Internal(
    "torch._dynamo.variables.torch.TorchInGraphFunctionVariable", "redirection in compiled code"
)
TensorVariable = Internal("torch._dynamo.variables.tensor.TensorVariable", _COMPILE)
TENSORIFIED = Internal(
    "torch.fx.passes._tensorify_python_scalars.SUPPORTED_OPS", "numbers that change from call to call"
)
"""The operators in whose calls AOTAutograd replaces numbers by tensors."""
_CHANGED_NUMBERS = "in-place operators on tensors of one number in compiled code"
_tensorify = Internal(
    "torch._functorch._aot_autograd.graph_compile._apply_tensorify_python_scalars", _CHANGED_NUMBERS
)
_TensorifyState = Internal("torch._dynamo.symbolic_convert.TensorifyState", _CHANGED_NUMBERS)
_TensorifyRestart = Internal("torch._dynamo.exc.TensorifyScalarRestartAnalysis", _CHANGED_NUMBERS)
TensorGuards = Internal("torch._C._dynamo.guards.TensorGuards", "quick calls of compiled code")
TorchDynamoException = Internal("torch._dynamo.exc.TorchDynamoException", "verifying torch.compile")
BackendCompilerFailed = Internal("torch._dynamo.exc.BackendCompilerFailed", "verifying torch.compile")
counters = Internal("torch._dynamo.utils.counters", "counting graph breaks")
reset = Internal("torch._dynamo.reset", "counting graph breaks")


def read_names_once() -> None:
    """Let Dynamo, if it is loaded, look up the functions that it handles by name; it does so only once."""
    if TRACE_RULES in sys.modules:
        sys.modules[TRACE_RULES].get_torch_obj_rule_map()
        _InGraphFunction.get()._get_handlers()


def is_backend(argument: Any, backend: Callable[..., Any]) -> bool:
    """Whether ``argument`` is ``backend``, inside any wrappers that PyTorch puts around backends."""
    if not callable(argument):
        return False
    inner = _innermost_backend(argument)
    return getattr(inner, "compiler_fn", inner) is backend


def uncompiled(value: Any) -> Any:
    """Return the module inside a ``torch.compile(module)``; return any other value unchanged."""
    return getattr(value, "_orig_mod", value)


def traced_instead(substitutes: Mapping[Callable[..., Any], Callable[..., Any]]) -> list[Patch]:
    """Return patches that let Dynamo trace functions of ours in place of PyTorch's.

    A function that already has a substitute (the user's, or that of an enclosing frame) keeps it.
    """
    handlers = _PolyfilledFunctionVariable.get()._get_polyfill_handlers()
    added = {}
    for function, substitute in substitutes.items():
        if function not in handlers:
            handler: Any = functools.partial(function)
            handler.__torch_dynamo_polyfill__ = substitute
            added[function] = handler
    ids = {id(function): True for function in added}
    return [Patch(handlers, added), Patch(Members(_polyfilled_ids()), ids)]


def scaled_products_kept_whole() -> list[Patch]:
    """Return patches that let Dynamo trace ``addcmul`` and ``addcdiv`` with a number as single operators.

    Otherwise Dynamo splits them into parts, which would need the number's value or would round in between.
    Calls with a tensor in place of the number still need those parts.
    """
    variable, handlers = TensorVariable.get(), _InGraphFunction.get()._get_handlers()

    def for_tensors_only(original: Callable[..., Any]) -> Callable[..., Any]:
        def handler(self: Any, tx: Any, *tensors: Any, **options: Any) -> Any:
            given = isinstance(options.get("value"), variable)
            return original(self, tx, *tensors, **options) if given else None

        return handler

    methods = ("method_addcmul_", "method_addcdiv_")
    called = [one for one in (torch.addcmul, torch.addcdiv) if one in handlers]
    return [
        functions(variable, **{name: for_tensors_only(getattr(variable, name)) for name in methods}),
        Patch(handlers, {one: for_tensors_only(handlers[one]) for one in called}),
    ]


def differentiable_once(refuse: Callable[[], Any]) -> list[Patch]:
    """Return patches that make compiled functions call ``refuse`` if their gradients keep a graph.

    They apply to functions that AOTAutograd compiles while they are in place. A graph of gradients would not
    lead to the functions' inputs. Second derivatives would be missing, and PyTorch would treat them as zeros
    where that is allowed (``allow_unused``, ``torch.autograd.functional``).
    """
    factory = _AutogradFunctionFactory.find()
    if factory is None:
        return []
    build = factory.build

    def build_once(self: Any) -> Any:
        function = build(self)
        function._double_backward = staticmethod(lambda *_: refuse())
        return function

    return [functions(factory, build=build_once)]


def without_restart(graph: Graph) -> list[Patch]:
    """Return patches that let AOTAutograd compile ``graph`` as it is, if Dynamo would otherwise lose calls.

    Dynamo restarts to drop calls of ``item`` on floats that have become constants. It then also drops every
    call whose result is 0-d float64 and unused, such as the call of an in-place operator.
    """
    apply, state, restart = _tensorify.find(), _TensorifyState.find(), _TensorifyRestart.find()
    if None in (apply, state, restart) or not any(map(_is_unused_number, graph.nodes)):
        return []

    def go_on(module: Any) -> None:
        before = set(state.force_specializations)
        try:
            apply(module)
        except restart:  # raised only after all of its work is done
            state.force_specializations.intersection_update(before)

    return [functions(sys.modules[apply.__module__], **{apply.__name__: go_on})]


def _is_unused_number(node: Node) -> bool:
    value = node.meta.get("example_value")
    is_call = node.op.startswith("call_") and not node.users
    return is_call and isinstance(value, torch.Tensor) and value.dim() == 0 and value.dtype == torch.float64
