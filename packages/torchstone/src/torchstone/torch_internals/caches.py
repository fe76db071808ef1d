"""The caches of ``transformers`` (``DynamicCache`` and others) as trees, which exports take and return.

PyTorch flattens an object only if its class is registered, and ``transformers`` registers none of its caches.
Here the parts of a cache are all attributes that hold tensors or numbers: ``layers``, and in each layer
``keys`` and ``values``. A tensor that was left out would become a constant that no call checks. Numbers
become constants that each call checks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from .patches import Patch, patched
from .probing import Internal

_nodes = Internal("torch.utils._pytree.SUPPORTED_NODES", "exporting models with caches")
_node = Internal("torch.utils._pytree.NodeDef", "exporting models with caches")
_attribute = Internal("torch.utils._pytree.GetAttrKey", "exporting models with caches")

_BASES = ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin")
_NOT_PARTS = (torch.dtype, torch.device, torch.Stream)


class _Names(list[str]):
    """The names of an object's parts, with its class and its other attributes, to rebuild the object."""

    def __init__(self, names: Sequence[str], kind: type, rest: dict[str, Any]) -> None:
        super().__init__(names)
        self.kind, self.rest = kind, rest

    def __deepcopy__(self, memo: dict[int, Any]) -> _Names:
        return self  # tensors of a trace cannot be copied, and nothing ever writes to this object


@contextmanager
def caches_as_trees() -> Iterator[None]:
    """Let PyTorch flatten caches inside the block. Does nothing if ``transformers`` is not imported."""
    module = sys.modules.get("transformers.cache_utils")
    classes = [one for name in _BASES for one in _and_below(getattr(module, name, None))]
    if not classes:
        yield
        return
    node = _node.get()
    made = {one: node(one, _flatten, _unflatten, _flatten_with_keys) for one in classes}
    with patched(Patch(_nodes.get(), made)):
        yield


def _and_below(cls: Any) -> Iterator[type]:
    if cls is not None:
        yield cls
        for one in cls.__subclasses__():
            yield from _and_below(one)


def _flatten(cache: Any) -> tuple[list[Any], _Names]:
    whole = vars(cache)
    names = [name for name, value in whole.items() if _is_part(value)]
    rest = {name: value for name, value in whole.items() if name not in names}
    return [whole[name] for name in names], _Names(names, type(cache), rest)


def _flatten_with_keys(cache: Any) -> tuple[list[tuple[Any, Any]], _Names]:
    values, names = _flatten(cache)
    key = _attribute.get()
    return [(key(name), value) for name, value in zip(names, values, strict=True)], names


def _unflatten(values: Any, names: _Names) -> Any:
    made: Any = object.__new__(names.kind)
    vars(made).update(names.rest, **dict(zip(names, values, strict=True)))
    return made


def _is_part(value: Any) -> bool:
    """Whether a value is, or contains, a number, a tensor (or a stand-in for one), or a cache."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(map(_is_part, value))
    kind = type(value)
    if kind in _nodes.get() or isinstance(value, (int, float)):
        return True
    return kind.__module__.partition(".")[0] == "torch" and not isinstance(value, _NOT_PARTS)
