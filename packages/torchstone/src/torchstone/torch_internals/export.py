"""``torch.export``: the composite operators that it keeps whole, overridden expansions, and effects."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._ops import _OpNamespace
from torch.export import ExportedProgram

from .dynamo import traced_instead
from .fake import fake_rules
from .operators import OpOverload
from .patches import Members, Patch, attributes, for_tracing_thread, functions, is_tracing
from .probing import Internal

_EXPORT = "exporting"
_exported_program = Internal("torch.export.exported_program", _EXPORT)
_trace = Internal("torch.export._trace", _EXPORT)
_override = Internal("torch.export.exported_program._override_composite_implicit_decomp", _EXPORT)
_effects = Internal("torch._library.simple_registry.singleton", _EXPORT).get
_impure = Internal("torch.fx.node._side_effectful_functions", "checking values")
_copies_removed = Internal("torch.export.exported_program._remove_unnecessary_copy_op_pass", _EXPORT)
_materialize = Internal("torch._export.utils._materialize_cpp_cia_ops", _EXPORT)
_collect_aten = Internal("torch._export.utils._collect_all_valid_cia_ops_for_aten_namespace", _EXPORT)
_is_preservable = Internal("torch._export.utils._is_preservable_cia_op", _EXPORT)


def quick_overrides(overriding: Callable[..., Any]) -> Patch:
    """Return a patch that lets exports use ``overriding`` and :func:`composites`, not their own functions."""
    _override.get()  # look up the original before the patch replaces it
    return functions(
        _exported_program.get(),
        _override_composite_implicit_decomp=overriding,
        _collect_all_valid_cia_ops=composites,
    )


def exporting_here() -> list[Patch]:
    """Return patches that hide an export from other threads, where it would disable ``torch.compile``."""

    def flag() -> bool:
        return torch.compiler._is_exporting_flag

    is_exporting = for_tracing_thread(flag, lambda: False)
    return [attributes(torch.compiler, is_exporting=is_exporting), *traced_instead({is_exporting: flag})]


def without_copies_of_assigned_buffers() -> list[Patch]:
    """Return patches that stop PyTorch from copying buffers that a forward pass assigns.

    It knows those of the root module only, and copies into a wrong one if a buffer was None before.
    """
    trace = _trace.find()
    if not hasattr(trace, "register_buffer_assignment_hook"):
        return []

    def ignore(*_: Any) -> Any:
        return torch.nn.modules.module.register_module_buffer_registration_hook(lambda *_: None)

    return [functions(trace, register_buffer_assignment_hook=ignore)]


def copies_into_state() -> list[Patch]:
    """Return patches that let decomposed programs keep copies into state that broadcast or convert.

    PyTorch removes every copy into a buffer or parameter, so later reads of the buffer would get the source
    with its own shape and dtype.
    """
    if _copies_removed.find() is None:
        return []
    return [functions(_exported_program.get(), _remove_unnecessary_copy_op_pass=_without_plain_copies)]


def _without_plain_copies(module: Any, signature: Any) -> tuple[Any, Any]:
    state = {**signature.buffers_to_mutate, **signature.parameters_to_mutate}
    copies = module.graph.find_nodes(op="call_function", target=torch.ops.aten.copy.default)
    with module._set_replace_hook(signature.get_replace_hook()):
        for node in copies:
            source = node.args[1]
            if node.name in state and _geometry(node) == _geometry(source):
                node.replace_all_uses_with(source)
                module.graph.erase_node(node)
        module.recompile()
    return module, signature


def _geometry(node: torch.fx.Node) -> tuple[torch.dtype, list[str]]:
    """Return the dtype and shape of a node; symbolic sizes are equal only if their texts are."""
    tensor = node.meta["val"]
    return tensor.dtype, list(map(str, tensor.shape))


def without_guards_on_bases(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` without guards on the base tensors of example inputs that were views.

    The program's own inputs are not views, and PyTorch fails to trace it again with such guards.
    """
    guards = getattr(program, "_guards_code", [])
    free = [guard for guard in guards if "._base." not in guard]
    if len(free) < len(guards):
        program = copy.copy(program)
        program._guards_code = free
    return program


def flexible_attention_in_full() -> list[Patch]:
    """Return patches that let ``flex_attention`` call PyTorch's own formula, which a graph can contain."""
    operator = getattr(torch.ops.higher_order, "flex_attention", None)
    formula = getattr(operator, "py_kernels", {}).get(torch._C.DispatchKey.CompositeExplicitAutograd)
    if formula is None:
        return []

    def called(_: Any, *args: Any, **kwargs: Any) -> Any:
        return formula(*args, **kwargs)

    return [functions(type(operator), __call__=called)]


def overridden_tables(
    operator: OpOverload, expansion: Callable[..., Any]
) -> tuple[dict[Any, Callable[..., Any]], Callable[..., Any] | None]:
    """Return the Python kernels and the rule for fake tensors that let an export run ``expansion``.

    The rule is None if ``operator`` already has one. PyTorch writes both into its tables; here it does so for
    a copy of ``operator`` that calls the same code, so the tables of ``operator`` do not change.
    """
    twin = copy.copy(operator)
    twin.py_kernels, twin._dispatch_cache = dict(operator.py_kernels), {}
    with _override({twin: expansion}):
        rule = None if operator in fake_rules() else fake_rules()[twin]
        return dict(twin.py_kernels), rule


def without_effect(qualified_name: str) -> Patch:
    """Return a patch that makes an operator (``aten::name``) free of effects in the thread that traces."""
    entry = _effects().find(qualified_name)
    return attributes(entry, effect=_NoEffect(entry.effect))


def kept_in_graphs(operator: OpOverload) -> list[Patch]:
    """Return patches that let graphs keep calls of ``operator`` whose results are unused."""
    return [Patch(Members(_impure.get()), {operator: True})]


class _NoEffect:
    """An operator's entry in PyTorch's table of effects that has no effect in the thread that traces."""

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs

    @property
    def effect(self) -> Any:
        return None if is_tracing() else self._theirs.effect


def composites() -> set[OpOverload]:
    """Return every composite-implicit operator that can be kept whole, including custom ones.

    The result is that of PyTorch's own ``_collect_all_valid_cia_ops``, which asks the dispatcher once for
    each namespace.
    """
    _materialize()
    found: set[Any] = set(_collect_aten())
    for name in torch.ops._dir:
        space = getattr(torch.ops, name)
        if name != "aten" and isinstance(space, _OpNamespace):
            found |= {one for packet in space for one in _overloads(space, packet) if _is_preservable(one)}
    return found


def _overloads(space: _OpNamespace, name: str) -> Iterator[OpOverload]:
    packet = getattr(space, name)
    yield from (getattr(packet, overload) for overload in packet.overloads())
