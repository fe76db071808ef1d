"""Captures a model as an ``ExportedProgram``: ``torch.export`` with capture rules and clear errors."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram

from ..config import config
from ..errors import CaptureError, TorchstoneError, UnsupportedDtype, UnsupportedLayout, described
from ..torch_internals import pytree
from ..torch_internals.caches import caches_as_trees
from ..torch_internals.distributed import dtensors_in_graphs
from ..torch_internals.export import (
    exporting_here,
    flexible_attention_in_full,
    without_copies_of_assigned_buffers,
)
from ..torch_internals.fake import UnsupportedOperatorException
from ..torch_internals.logs import without_dumps
from ..torch_internals.patches import patched, tracing
from .assertions import asserting
from .assigned_buffers import written_at_the_end
from .dynamic_sizes import Sizes, suggested_checks, unknown_expression
from .eager_calls import eager_error
from .function_modules import as_module, name_as_in_owner
from .graphs import is_users_file
from .operators.tracing import mended_operators, standing_in
from .plain_attributes import attributes_followed
from .rules.registry import replacing, without_replaced_modules, without_stand_ins
from .transforms import refusal_for


def require_plain(label: str, value: Any) -> None:
    """Raise if ``value`` contains a tensor that is sparse, nested or quantized."""
    for leaf in pytree.tree_leaves(value):
        if not isinstance(leaf, torch.Tensor):
            continue
        if leaf.is_nested or leaf.layout is not torch.strided:
            kind = "a nested tensor" if leaf.is_nested else f"a tensor of layout {leaf.layout}"
            raise UnsupportedLayout(
                f"{label} is {kind}; a program takes plain strided tensors",
                hint="pass a dense tensor (to_dense, torch.nested.to_padded_tensor) and convert it inside",
            )
        if leaf.is_quantized:
            raise UnsupportedDtype(
                f"{label} is a quantized tensor ({leaf.dtype}), which torch.export cannot trace",
                hint="pass its int_repr() and dequantize it inside the model",
            )


@caches_as_trees()
def capture(
    model: torch.nn.Module | Callable[..., Any] | ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> ExportedProgram:
    """Trace ``model`` on example inputs; an ``ExportedProgram`` is returned as it is.

    Raises :class:`CaptureError` with PyTorch's own message, which names the
    user's source line, :class:`UnsupportedLayout` for sparse and nested example
    inputs, and :class:`UnsupportedDtype` for quantized ones. If eager PyTorch
    refuses the inputs as well, its error is in the message and is the cause.
    """
    if isinstance(model, ExportedProgram):
        if args or kwargs:
            raise CaptureError("an ExportedProgram is traced already: it takes no example inputs")
        return model
    if isinstance(args, torch.Tensor) or not isinstance(args, (tuple, list)):
        raise CaptureError(
            f"example inputs must be a tuple of positional arguments, not {described(args)}",
            hint="for one input x write (x,)",
        )
    if not callable(model):
        raise CaptureError(
            f"cannot export {described(model)}",
            hint="give an nn.Module, a function or an ExportedProgram",
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise CaptureError(
            f"keyword arguments must be a mapping from names to values, not {described(kwargs)}",
            hint='write them as {"name": value}',
        )
    for position, value in enumerate(args):
        require_plain(f"example input {position}", value)
    for name, value in (kwargs or {}).items():
        require_plain(f"example input {name!r}", value)
    module = as_module(model)
    if module is model:
        module = without_replaced_modules(module)
    if not isinstance(model, torch.nn.Module) and isinstance(dynamic_shapes, (tuple, list)):
        dynamic_shapes = {"args": tuple(dynamic_shapes)}  # the wrapper takes the inputs as *args
    args, kwargs = _distinct(module, args, kwargs or {})
    sizes = Sizes(capture.__code__)
    try:
        with (
            _tracing(),
            without_dumps(),
            patched(*sizes.patches),
            written_at_the_end(module),
            attributes_followed(module),
            _dense_results(module),
        ):
            program = torch.export.export(
                module, tuple(args), dict(kwargs), dynamic_shapes=dynamic_shapes, strict=False
            )
        name_as_in_owner(program, module)
        return program
    except TorchstoneError:
        raise
    except Exception as error:  # whatever tracing raises, there is no program
        name = (
            type(model).__name__
            if isinstance(model, torch.nn.Module)
            else getattr(model, "__qualname__", "function")
        )
        refused = eager_error(module, args, kwargs)
        told = None
        if refused is None:
            told = sizes.error(name, error) or refusal_for(error) or _without_shape(error)
        if told is not None:
            raise told from error
        unknown = unknown_expression(error) if refused is None else None
        if unknown is not None:
            checks = " or ".join(suggested_checks(error)) or "calls of torch._check(…)"
            raise CaptureError(
                f"{name} needs a size or number now that only a call knows: {unknown}{_where(error)}",
                hint=f"say what holds of it with {checks}, branch with torch.cond, choose values with "
                "torch.where, and do not make a Python number of it with int()",
            ) from error
        hint = "eager PyTorch takes the same inputs; for control flow on values use torch.cond"
        if refused is not None:
            hint = f"eager PyTorch refuses the same inputs: {type(refused).__name__}: {refused}"
        raise CaptureError(
            f"torch.export cannot capture {name}: {type(error).__name__}: {error}", hint=hint
        ) from refused or error


def _where(error: Exception) -> str:
    """Return `` at FILE:LINE`` of the last line of the user's code before an error; empty if none."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if is_users_file(one.filename)]
    return f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _without_shape(error: Exception) -> CaptureError | None:
    """Return the error in place of PyTorch's about an operator without a metadata function, else None."""
    if not isinstance(error, UnsupportedOperatorException.find() or ()):
        return None
    overload = error.func
    name, hint = overload.name(), "write it with other operators, or run it outside of the program"
    if overload.namespace != "aten":
        hint = f'describe its result with torch.library.register_fake("{name}"), and write a lowering'
    return CaptureError(
        f"PyTorch does not know which shape and dtype {overload} returns{_where(error)}", hint=hint
    )


def _distinct(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the example inputs, with a new tensor in place of each view and of each tensor used twice.

    A tensor is used twice if it is also a weight or another input. ``torch.export`` takes one tensor in
    two places for a single input: its trace of ``f(x, x)`` ignores the first argument. And it takes the
    sizes of the tensor behind a view for inputs, and compares dynamic sizes with them.
    """
    seen = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}

    def distinct(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in seen and tensor._base is None:
            seen.add(id(tensor))
            return tensor
        return _alias(tensor).requires_grad_(tensor.requires_grad)

    given: tuple[Sequence[Any], Mapping[str, Any]] = pytree.tree_map_only(
        torch.Tensor, distinct, (tuple(args), dict(kwargs))
    )
    return given


def _alias(tensor: torch.Tensor) -> torch.Tensor:
    """Return another tensor on the same memory, which is not a view if ``tensor`` is a plain tensor."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.is_conj() or tensor.is_neg():
        return tensor.detach()
    storage, place = tensor.untyped_storage(), tensor.storage_offset()
    return tensor.new_empty(0).set_(storage, place, tensor.size(), tensor.stride())


@contextmanager
def _tracing() -> Iterator[None]:
    with (
        tracing(),
        dtensors_in_graphs(),
        asserting(config.check_values),
        patched(*exporting_here(), *flexible_attention_in_full(), *without_copies_of_assigned_buffers()),
        standing_in(),
        mended_operators(),
        replacing(),
    ):
        yield


@contextmanager
def _dense_results(module: torch.nn.Module) -> Iterator[None]:
    """Inside, ``module`` returns the dense parts of the sparse and quantized tensors in its result."""

    def replace(_: Any, __: Any, result: Any) -> Any:
        return without_stand_ins(result)

    handle = module.register_forward_hook(replace)
    try:
        yield
    finally:
        handle.remove()
