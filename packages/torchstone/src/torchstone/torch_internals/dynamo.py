"""Dynamo and AOTAutograd, which trace what ``torch.compile`` compiles."""

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
"""The operators in whose calls AOTAutograd puts tensors in place of numbers."""
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
    """Lets Dynamo look up the functions that it treats by name, if it is there: it does so once."""
    if TRACE_RULES in sys.modules:
        sys.modules[TRACE_RULES].get_torch_obj_rule_map()
        _InGraphFunction.get()._get_handlers()


def is_backend(argument: Any, backend: Callable[..., Any]) -> bool:
    """Whether ``argument`` is ``backend`` in the wrappers that PyTorch puts around backends."""
    if not callable(argument):
        return False
    inner = _innermost_backend(argument)
    return getattr(inner, "compiler_fn", inner) is backend


def uncompiled(value: Any) -> Any:
    """What ``torch.compile(module)`` stands for; anything else is itself."""
    return getattr(value, "_orig_mod", value)


def traced_instead(substitutes: Mapping[Callable[..., Any], Callable[..., Any]]) -> list[Patch]:
    """Lets Dynamo trace functions of ours in place of PyTorch's.

    A function that has a substitute already keeps it: the user's own, or that of a frame around this one.
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
    """Lets Dynamo trace ``addcmul`` and ``addcdiv`` with numbers as what they are.

    It traces parts of them, for which it would have to know the number, or which round on the way.
    Tensors in place of numbers need those parts.
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
    """Lets functions that AOTAutograd compiles now call ``refuse`` where their gradients keep a graph.

    That graph would not lead to the functions' inputs: second derivatives would be missing, and
    PyTorch would take them for zeros where it may (``allow_unused``, ``torch.autograd.functional``).
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
    """Lets AOTAutograd compile ``graph`` as it is where Dynamo, starting again, would leave out some calls.

    Dynamo starts again to drop calls of ``item`` on floats that have become constants. It also drops every
    call whose result is such a float, 0-d and of float64, and is not used: an in-place operator's.
    """
    apply, state, restart = _tensorify.find(), _TensorifyState.find(), _TensorifyRestart.find()
    if None in (apply, state, restart) or not any(map(_is_unused_number, graph.nodes)):
        return []

    def go_on(module: Any) -> None:
        before = set(state.force_specializations)
        try:
            apply(module)
        except restart:  # raised when all is done
            state.force_specializations.intersection_update(before)

    return [functions(sys.modules[apply.__module__], **{apply.__name__: go_on})]


def _is_unused_number(node: Node) -> bool:
    value = node.meta.get("example_value")
    is_call = node.op.startswith("call_") and not node.users
    return is_call and isinstance(value, torch.Tensor) and value.dim() == 0 and value.dtype == torch.float64
