"""The arguments and results of a step as leaves of a tree, and which leaves a program can have as constants.

PyTorch's trees know lists, tuples, dicts, named tuples and registered classes. This module also opens
dataclasses, ``UserDict`` (the class of a tokenizer's batches) and subclasses of dict, list and tuple. It
rebuilds them as objects of the same class.
"""

from __future__ import annotations

import dataclasses
import gc
from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from types import BuiltinFunctionType, EllipsisType, FunctionType, ModuleType, NoneType, SimpleNamespace
from typing import Any, NoReturn
from uuid import UUID

import numpy
import torch

from ..errors import TrainingError, described
from ..overlap import overlap
from ..torch_internals import pytree
from .refusals import Refused

_BY_VALUE: frozenset[type] = frozenset(
    {bool, int, str, bytes, NoneType, EllipsisType, range}
    | {torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size}
)
"""Immutable classes. Objects of one of them that compare equal are the same for a program."""
_BY_TEXT = (complex, float, numpy.generic, date, time, timedelta, Decimal, Fraction, PurePath, UUID)
"""Immutable classes whose ``repr`` shows the whole value."""
_BY_IDENTITY = (type, FunctionType, BuiltinFunctionType, ModuleType, Enum)
_LEAVES = frozenset({torch.Tensor, torch.nn.Parameter, float, numpy.float64, *_BY_VALUE})
"""Classes of leaves that are not containers."""
_MOST = 3000
"""The most values that :func:`reaches` looks at in an object, to save time on large ones."""


_MOST_TREES = 100
_trees: dict[Any, pytree.TreeSpec] = {}
"""The trees of nested tuples, lists and dicts that were flattened, by their structure."""


def flatten(values: Any) -> tuple[list[Any], pytree.TreeSpec]:
    """Return the leaves of ``values``, and the tree with which ``pytree.tree_unflatten`` rebuilds them."""
    leaves: list[Any] = []
    structure = _structure(values, leaves)
    known = None if structure is None else _trees.get(structure)
    if known is not None:
        return leaves, known
    leaves, tree = _flattened_by_pytree(values)
    if structure is not None:
        if len(_trees) >= _MOST_TREES:
            _trees.clear()
        _trees[structure] = tree
    return leaves, tree


def _structure(values: Any, leaves: list[Any]) -> Any:
    """Append the leaves of nested tuples, lists and dicts, and return a value for how they are nested.

    Returns None if there is anything else among them, such as a named tuple; the leaves are then incomplete.
    """
    kind = type(values)
    if kind in _LEAVES and kind is not torch.Size:  # PyTorch's trees may open sizes
        leaves.append(values)
        return 0
    if kind is dict:
        parts: list[Any] = [_structure(one, leaves) for one in values.values()]
        parts.append(tuple((type(key), key) for key in values))
    elif kind is tuple or kind is list:
        parts = [_structure(one, leaves) for one in values]
    else:
        return None
    return None if None in parts else (kind, *parts)


def _flattened_by_pytree(values: Any) -> tuple[list[Any], pytree.TreeSpec]:
    leaves, tree = pytree.tree_flatten(values)
    if _LEAVES.issuperset(map(type, leaves)):
        return leaves, tree
    return pytree.tree_flatten(pytree.tree_map(_opened, values))


def form_of(leaf: Any) -> Any:
    """Return what a program depends on in a leaf of a batch, or None if the leaf could change unnoticed."""
    kind = type(leaf)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return leaf.shape, leaf.stride(), leaf.dtype, leaf.requires_grad
    return kind if isinstance(leaf, float) else _constant(leaf)


def forms_of(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Return what a program depends on in a batch; raise TrainingError if a leaf could change unnoticed."""
    forms = [form_of(leaf) for leaf in leaves]
    if None in forms:
        place = forms.index(None)
        _refuse(place, leaves[place])
    if len(set(map(id, leaves))) < len(leaves):
        _note_repeated(leaves, forms)
    return tuple(forms)


def _note_repeated(leaves: Sequence[Any], forms: list[Any]) -> None:
    """Give each repeated tensor a form that names its first place: code may ask if two are the same one."""
    first: dict[int, int] = {}
    for place, leaf in enumerate(leaves):
        before = first.setdefault(id(leaf), place)
        if before < place and isinstance(leaf, torch.Tensor):
            forms[place] = torch.Tensor, f"leaf {before} again"


def check_tensors(leaves: Iterable[Any], state: Mapping[int, str]) -> None:
    """Raise TrainingError if a tensor was computed with gradients, or shares memory with the state.

    ``state`` maps the addresses of its memory to names.
    """
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            continue
        if leaf.grad_fn is not None:
            raise TrainingError(
                f"the batch has a tensor of shape {list(leaf.shape)} that was computed with gradients "
                f"({leaf.grad_fn.name()}), and gradients do not go back past the step",
                hint="compute it in the model or in loss_fn, or pass it without gradients: tensor.detach()",
            )
        name = state.get(leaf.untyped_storage().data_ptr())
        if name is not None:
            raise TrainingError(
                f"the batch has a tensor over the memory of {name}, which the step has too",
                hint="read it from the model in loss_fn, or pass a copy: tensor.detach().clone()",
            )


def check_written(tensors: Sequence[torch.Tensor], places: Iterable[int]) -> None:
    """Raise TrainingError if a tensor that the step writes, at one of ``places``, overlaps another tensor."""
    for place in places:
        for other, tensor in enumerate(tensors):
            if other != place and overlap(tensors[place].detach(), tensor.detach()):
                raise shared_write()


def shared_write() -> TrainingError:
    """Return the error for a write into memory that two arguments of a step share."""
    return TrainingError(
        "the step writes into a tensor that has memory in common with another one of the batch or the state",
        hint="pass a copy: tensor.clone()",
    )


def _refuse(place: int, leaf: Any) -> NoReturn:
    if isinstance(leaf, numpy.ndarray):
        raise TrainingError(
            f"leaf {place} of the batch is a NumPy array of shape {list(leaf.shape)}, and a program takes "
            "tensors",
            hint="pass torch.from_numpy(array)",
        )
    if isinstance(leaf, torch.Tensor):
        raise TrainingError(
            f"leaf {place} of the batch is {described(leaf)}, a subclass of torch.Tensor, and a program "
            "takes plain tensors",
            hint="pass tensor.as_subclass(torch.Tensor)",
        )
    raise TrainingError(
        f"leaf {place} of the batch is {described(leaf)}, and nothing tells whether it stays the same",
        hint="pass tensors, numbers and strings, in tuples, lists, dicts or dataclasses; what every step has "
        "in common belongs in an attribute of the model",
    )


def _constant(leaf: Any) -> Any:
    """Return a value that is equal only for equal constants, or None if ``leaf`` cannot be a constant."""
    kind = type(leaf)
    if kind in _BY_VALUE or isinstance(leaf, _BY_IDENTITY):
        return kind, leaf
    if isinstance(leaf, _BY_TEXT):
        return kind, repr(leaf)
    if kind in (set, frozenset):
        parts: Any = frozenset(map(_constant, leaf))
    elif kind is slice:
        parts = tuple(map(_constant, (leaf.start, leaf.stop, leaf.step)))
    else:
        return (kind, leaf.name) if kind is _Unread else None
    return None if None in parts else (kind, parts)


class _Opened:
    """A container as a node of a tree: its class, keys, items and attributes, from which it is rebuilt."""

    def __init__(self, kind: type, keys: Sequence[Any], items: Sequence[Any], own: dict[str, Any]) -> None:
        self.kind, self.keys, self.items, self.own = kind, tuple(keys), items, own


def _flattened(opened: _Opened) -> tuple[list[Any], tuple[Any, ...]]:
    return [*opened.items, *opened.own.values()], (opened.kind, opened.keys, tuple(opened.own))


def _made_again(children: Iterable[Any], form: Any) -> Any:
    kind, keys, names = form
    children = list(children)
    count = len(children) - len(names)
    items, own = children[:count], dict(zip(names, children[count:], strict=True))
    if issubclass(kind, tuple):
        made: Any = tuple.__new__(kind, items)
    else:
        made = kind.__new__(kind)
    if issubclass(kind, list):
        list.extend(made, items)
    elif issubclass(kind, dict):
        store = OrderedDict.__setitem__ if issubclass(kind, OrderedDict) else dict.__setitem__
        for key, item in zip(keys, items, strict=True):
            store(made, key, item)
    elif issubclass(kind, UserDict):
        own["data"] = dict(zip(keys, items, strict=True))
    for name, value in own.items():
        object.__setattr__(made, name, value)
    return made


pytree.register_pytree_node(_Opened, _flattened, _made_again)


def _opened(leaf: Any) -> Any:
    """Return a container, and all containers in it, as nodes of a tree. Any other leaf is unchanged."""
    kind, own = type(leaf), dict(getattr(leaf, "__dict__", {}))
    if kind in _LEAVES or isinstance(leaf, (type, Enum, torch.Tensor, torch.nn.Module)):
        return leaf
    if isinstance(leaf, UserDict):
        data = own.pop("data")
        return _opened_as(
            kind, data, data.values(), {name: _readable(name, one) for name, one in own.items()}
        )
    if isinstance(leaf, dict) and not isinstance(leaf, defaultdict):
        return _opened_as(kind, leaf, dict.values(leaf), own)
    if isinstance(leaf, list) or (isinstance(leaf, tuple) and _made_by_tuple(kind)):
        return _opened_as(kind, (), list(leaf), own)
    if dataclasses.is_dataclass(leaf):
        names = [field.name for field in dataclasses.fields(leaf)]
        slots = {name: getattr(leaf, name) for name in names if name not in own and hasattr(leaf, name)}
        return _opened_as(kind, (), (), slots | own)
    return _opened_as(kind, (), (), own) if kind is SimpleNamespace else leaf


def _made_by_tuple(kind: type) -> bool:
    """Whether a subclass of tuple is built as tuples are: it has no ``__new__`` of its own."""
    return not any("__new__" in vars(one) for one in kind.__mro__ if one not in (tuple, object))


def _opened_as(kind: type, keys: Any, items: Any, own: dict[str, Any]) -> _Opened:
    def deeper(values: Any) -> Any:
        return pytree.tree_map(_opened, values)

    return _Opened(kind, list(keys), deeper(list(items)), deeper(own))


def _readable(name: str, value: Any) -> Any:
    """Return ``value`` if it can be part of a program, otherwise an object that raises when it is used."""
    leaves, _ = flatten(value)
    return _Unread(name) if any(form_of(leaf) is None for leaf in leaves) else value


class _Unread:
    """An attribute of a container that code of a step may not use: no program can tell whether it changes."""

    def __init__(self, name: str) -> None:
        self.name = name


def _refuses(special: str) -> Callable[..., Any]:
    def method(self: _Unread, *args: Any) -> Any:
        raise Refused(
            f"code of the step uses the attribute {self.name!r} of the batch, and nothing tells whether it "
            "stays the same",
            "read it before the step, and pass what is needed in the batch: tensors, numbers, strings",
        )

    return method


for _name in ("bool", "call", "contains", "eq", "getattr", "getitem", "hash", "iter", "len", "str"):
    setattr(_Unread, f"__{_name}__", _refuses(_name))


def reaches(value: Any, kinds: tuple[type, ...]) -> bool:
    """Whether ``value`` is an object of ``kinds`` or refers to one, directly or through other objects.

    The search does not go into classes, functions, modules (Python's and PyTorch's) and tensors.
    """
    waiting, seen = deque([value]), dict[int, Any]()
    while waiting and len(seen) < _MOST:
        one = waiting.popleft()
        if isinstance(one, kinds):
            return True
        if id(one) in seen or isinstance(
            one, (type, ModuleType, FunctionType, torch.nn.Module, torch.Tensor)
        ):
            continue
        seen[id(one)] = one
        waiting += gc.get_referents(one)
    return False
