"""Keeps what a model has in plain attributes, and refuses models that carry tensors in them between calls.

A forward pass may assign a tensor to an attribute that is neither a buffer nor a parameter, or put it into a
list, dict or object there. A program does not have such an attribute. It computes the same results if the
attribute is only written, as with ``self.last_attention = weights``. It does not if the next call reads what
this one wrote, so a tensor that the forward pass both reads and replaces is refused.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..errors import CaptureError
from ..torch_internals.dispatch import without_modes
from ..torch_internals.operators import OpOverload, schema_of
from ..torch_internals.pytree import tree_leaves
from ..torch_internals.tensors import is_transformed
from ..torch_internals.tracing import traced_constants, traced_node
from .containers import Contents, is_container

Tensor = torch.Tensor

_Visit = Callable[[str, Any], None]

_OF_ALL_MODULES = frozenset(vars(torch.nn.Module()))
_SAME_VALUES = frozenset(
    f"aten::{name}"
    for name in (
        "to",
        "_to_copy",
        "type_as",
        "clone",
        "contiguous",
        "detach",
        "detach_",
        "alias",
        "lift_fresh",
    )
)
"""Operators that give the tensor which the next call reads, or convert it in a way that may be repeated."""
_MOST_ENTRIES = 100_000
"""Larger containers are data, which a forward pass does not write."""


class _Snapshot:
    """What ``module`` and its submodules have in attributes."""

    def __init__(self, module: torch.nn.Module, is_copied: Callable[[Tensor], bool]) -> None:
        self._is_copied = is_copied
        self._module = module
        self._parts = [(part, dict(vars(part))) for part in module.modules()]
        self._containers = Contents()
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}
        self.tensors = dict(self._found(self._keep))

    def now(self) -> dict[str, Tensor]:
        """Return the tensors that the attributes hold now, by path."""
        return dict(self._found(lambda *_: None))

    def restore(self) -> None:
        """Give all attributes, and the containers and plain tensors in them, what they had."""
        self.put_back()
        _restore(self._copies.values())

    def put_back(self) -> None:
        """Give all attributes, and the containers in them, what they had. Values of tensors stay."""
        for part, before in self._parts:
            for name in vars(part).keys() - before.keys():
                del vars(part)[name]
            vars(part).update(before)
        self._containers.put_back()

    def _keep(self, path: str, value: Any) -> None:
        if isinstance(value, Tensor):
            if self._is_copied(value):
                self._copies[id(value)] = value, value.detach().clone()
        else:
            self._containers.add(path, value)

    def _found(self, visit: _Visit) -> Iterator[tuple[str, Tensor]]:
        seen: set[int] = set()
        for path, part in self._module.named_modules():
            for name, value in [*vars(part).items()]:
                if name not in _OF_ALL_MODULES:
                    yield from _tensors_in(f"{path}.{name}".lstrip("."), value, visit, seen, inside=False)


def _tensors_in(
    path: str, value: Any, visit: _Visit, seen: set[int], *, inside: bool
) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in ``value`` with their paths; calls ``visit`` for them and for each container."""
    if isinstance(value, Tensor):
        visit(path, value)
        yield path, value
        return
    if not inside and _is_plain_object(value):
        value, form = vars(value), "{}.{}"
    else:
        form = "{}[{!r}]"
    if not (is_container(value) or isinstance(value, tuple)):
        return
    if id(value) in seen or len(value) > _MOST_ENTRIES:
        return
    seen.add(id(value))
    if not isinstance(value, tuple):
        visit(path, value)
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in [*entries]:
        yield from _tensors_in(form.format(path, key), one, visit, seen, inside=True)


def _is_plain_object(value: Any) -> bool:
    """Whether ``value`` is an object with attributes of its own: not a module, class or function."""
    if isinstance(value, (torch.nn.Module, type, types.ModuleType, types.FunctionType, dict, list, tuple)):
        return False
    return isinstance(getattr(value, "__dict__", None), dict)


@contextmanager
def attributes_kept(module: torch.nn.Module) -> Iterator[None]:
    """After the block, the attributes of ``module`` and its submodules are as before it.

    This includes lists, dicts and objects in attributes, and the values of plain tensors.
    """
    snapshot = _Snapshot(module, lambda tensor: type(tensor) is Tensor and not tensor.is_meta)
    try:
        yield
    finally:
        snapshot.restore()


@contextmanager
def attributes_followed(module: torch.nn.Module) -> Iterator[None]:
    """Keep the attributes of ``module``, and refuse calls that carry a tensor in one to the next call.

    After the block, the plain tensors into which a trace has written have their old values, too.
    """
    snapshot = _Snapshot(module, lambda _: False)

    def end(*_: Any) -> None:
        try:
            _require_no_state(snapshot.tensors, snapshot.now())
        finally:
            snapshot.put_back()

    handle = module.register_forward_hook(end)
    written = _Written()
    try:
        with written:
            yield
    finally:
        handle.remove()
        snapshot.put_back()
        written.restore()


class _Written(TorchFunctionMode):
    """Copies real tensors before calls that write into them: a trace does so if all operands are real."""

    def __init__(self) -> None:
        super().__init__()
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if "out" in kwargs or _WRITING.search(getattr(func, "__name__", "")):
            for one in tree_leaves((args[:1], kwargs.get("out"))):
                known = id(one) in self._copies or type(one) is not Tensor
                if not (known or one.is_meta or is_transformed(one)):
                    with without_modes():
                        self._copies[id(one)] = one, one.detach().clone()
        return func(*args, **kwargs)

    def restore(self) -> None:
        _restore(self._copies.values())


_WRITING = re.compile(r"(?<!_)_$|^__i|^__setitem__$")


def _restore(copies: Iterable[tuple[Tensor, Tensor]]) -> None:
    for tensor, values in copies:
        if not torch.equal(tensor, values):
            with torch.no_grad():
                tensor.copy_(values)


def _require_no_state(before: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> None:
    """Raise :class:`CaptureError` if a traced call reads a tensor of ``before`` that is replaced ``now``."""
    replaced = {path: old for path, old in before.items() if now.get(path) is not old}
    read = {id(tensor) for tensor in traced_constants().values()} if replaced else ()
    for path, old in replaced.items():
        if id(old) in read and not _has_same_values(now.get(path), old):
            raise CaptureError(
                f"the forward pass reads the tensor in the attribute {path} and replaces it,"
                " but the attribute is not a buffer",
                hint="register the tensor as a buffer: a program keeps state between calls in buffers",
            )


def _has_same_values(new: Tensor | None, old: Tensor) -> bool:
    """Whether ``new`` is ``old``, converted or copied."""
    node = None if new is None else traced_node(new)
    while node is not None and isinstance(node.target, OpOverload):
        if schema_of(node.target).name not in _SAME_VALUES:
            return False
        node = node.args[0] if isinstance(node.args[0], torch.fx.Node) else None
    return node is not None and traced_constants().get(node) is old
