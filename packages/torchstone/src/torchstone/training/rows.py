"""Checks that the rows of a batch stay apart in a model, so that the batch can be padded.

The rows of a padded batch have the same values as without padding if no operator mixes rows, and if nothing
is computed from the number of rows. :func:`where_rows_are` checks this operator by operator, in one run of
the forward pass that has a symbol for that number. It refuses whatever it cannot prove, and every operator
that has no rule here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from ..compiler.provenance import Provenance
from ..errors import TorchstoneError, TrainingError
from ..torch_internals import pytree
from ..torch_internals.fake import VaryingRows
from ..torch_internals.operators import OpOverload
from ..torch_internals.patches import patched
from .batch import flatten
from .buckets import has_rows, not_of_rows
from .kept import refusing_changes
from .overlay import as_it_was
from .recipe import Recipe, loss_in
from .shown_numbers import refusing_unseen_settings
from .state import State
from .tracing import Substitution
from .writes import Writes, written

Tensor = torch.Tensor


@dataclass(frozen=True)
class Rows:
    """Where the rows of a tensor are: in the dimension ``dim``, where each row takes ``each`` places.

    ``inner`` places of a row are adjacent. They are followed by as many places of the next row.
    """

    dim: int
    each: int
    inner: int

    @property
    def outermost(self) -> bool:
        """Whether all places of a row in the dimension are adjacent."""
        return self.inner == self.each

    def block(self, tensor: Tensor) -> int:
        """Return how many elements of a row are adjacent in ``tensor``, in the order of its dimensions."""
        return self.inner * prod(tensor.shape[self.dim + 1 :])


def where_rows_are(recipe: Recipe, state: State, batch: Sequence[Any], tree: Any) -> list[Rows | None]:
    """Return where the rows are in each leaf of the result of ``loss_fn``; None for the losses.

    The list is empty for a batch of a single row, which is never padded. Raises :class:`TrainingError` if
    rows are mixed or may be mixed, and if the losses have no rows.
    """
    count = next(leaf.shape[0] for leaf in batch if has_rows(leaf))
    if count == 1:
        return []
    sizes = VaryingRows()
    own = {id(entry.tensor): _fake(sizes.constant, entry.tensor) for entry in state.entries}
    given = [_fake(sizes.varying, leaf) if has_rows(leaf) else leaf for leaf in batch]
    apart = _Apart(recipe.model, sizes)
    settings = patched(*refusing_unseen_settings(recipe.optimizer))
    with (
        settings,
        refusing_changes(recipe),
        as_it_was(recipe),
        ExitStack() as after,
        sizes.mode,
        apart,
        Substitution(own),
    ):
        after.callback(apart.writes.put_back)
        try:
            with torch.enable_grad():
                result = recipe.result(pytree.tree_unflatten(given, tree))
        except TorchstoneError:
            raise
        except Exception as error:
            raise TrainingError(
                f"a batch cannot be padded: nothing shows that its rows stay apart, "
                f"because {type(error).__name__}: {error}",
                hint=_WITHOUT,
            ) from error
        losses = loss_in(result)
        places = apart.rows(losses)
        if not all(map(sizes.allows, range(2, count + 1))):
            raise TrainingError(
                "a batch cannot be padded: code of the step looks at the number of its rows", hint=_WITHOUT
            )
        if places is None or places.dim != 0 or not places.outermost:
            raise not_of_rows(losses)
        found = [None if leaf is losses else apart.rows(leaf) for leaf in flatten(result)[0]]
    if not all(one is None or one.outermost for one in found):
        raise TrainingError(
            "a batch cannot be padded: in what loss_fn returns, rows lie between each other", hint=_WITHOUT
        )
    return found


_INNER = "inner_places_of_rows"
"""The attribute of a fake tensor with the value of ``Rows.inner``; without it, that is ``Rows.each``."""
_WITHOUT = "leave buckets out: batches of each size have a program of their own then"


def _fake(make: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
    return make(tensor.detach()).requires_grad_(tensor.requires_grad)


class _Apart(Provenance):
    """A mode that refuses operators that mix rows."""

    def __init__(self, model: torch.nn.Module, sizes: VaryingRows) -> None:
        super().__init__(model)
        self._sizes = sizes
        self.writes = Writes()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = pytree.tree_leaves((args, kwargs))
        concerned = any(map(self._sizes.depends, leaves)) or any(map(self.rows, leaves))
        self.writes.save(written(operator, args))
        made = operator(*args, **kwargs)
        if concerned and not _asks(operator):
            self._check(operator, _Call(args, kwargs, self, pytree.tree_leaves(made)))
        return made

    def depends(self, value: Any) -> bool:
        """Whether a number depends on how many rows there are."""
        return self._sizes.depends(value)

    def rows(self, value: Any) -> Rows | None:
        """Return where the rows of ``value`` are, or None if it has no rows."""
        if not isinstance(value, Tensor):
            return None
        found = []
        for dim, size in enumerate(value.shape):
            if each := self._sizes.multiple(size):
                found.append(Rows(dim, each, getattr(value, _INNER, each)))
        if len(found) > 1 or any(one.each < 0 for one in found):
            self._refuse(f"its rows are mixed in a tensor of shape {list(value.shape)}")
        return found[0] if found else None

    def _check(self, operator: Any, call: _Call) -> None:
        rule: _Rule | None = None
        if isinstance(operator, OpOverload):
            name = operator.overloadpacket.__name__.removesuffix("_")
            rule = _RULES.get(name) or (_by_element if torch.Tag.pointwise in operator.tags else None)
        if rule is None:
            self._refuse(f"nothing says whether {operator} mixes its rows")
        elif not rule(call):
            self._refuse(f"{operator} mixes its rows, or depends on their number")
        if call.given:
            first, rows = call.given[0]
            for one, own in call.made:
                inner = _inner(rows.block(first), one, own) if rule is _viewed else rows.inner
                setattr(one, _INNER, inner)

    def _refuse(self, what: str) -> None:
        line = self.now().line
        raise TrainingError(
            f"a batch cannot be padded: {what}{f', at {line}' if line else ''}", hint=_WITHOUT
        )


def _asks(operator: Any) -> bool:
    """Whether ``operator`` only asks about a tensor: PyTorch's own code does, and expects no exception."""
    return str(operator).partition(".")[0] == "prim" or operator.__name__.startswith("sym_")


class _Call:
    """A call of an operator that has to do with rows."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any], apart: _Apart, made: Any) -> None:
        self.args, self.kwargs = args, kwargs
        self.rows, self.depends = apart.rows, apart.depends
        leaves = pytree.tree_leaves((args, kwargs))
        self.counted = any(map(apart.depends, leaves))
        """Whether a number among the arguments depends on how many rows there are."""
        self.given = [(one, rows) for one in leaves if (rows := apart.rows(one))]
        """The tensors with rows among the arguments."""
        results = [one for one in made if isinstance(one, Tensor)]
        self.made = [(one, rows) for one in results if (rows := apart.rows(one))]
        self.kept = len(self.made) == len(results)
        """Whether all results have rows."""
        self.first_kept = bool(results) and apart.rows(results[0]) is not None

    def alike(self) -> bool:
        """Whether rows have the same length in all tensors that have rows."""
        given = {(rows.each, rows.inner) for _, rows in self.given}
        return len(given) <= 1 and len({rows.each for _, rows in (*self.given, *self.made)}) == 1

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[place] if len(self.args) > place else default


_Rule = Callable[[_Call], bool]
"""Whether each row of an operator's results depends only on the same row of its operands."""


def _by_element(call: _Call) -> bool:
    """Accept a call whose results still have rows, of the same length as in its operands.

    Such rows were not contracted. Whatever the operator did contract lies within one row.
    """
    return not call.counted and _sized(call)


def _sized(call: _Call) -> bool:
    """Like :func:`_by_element`, for an operator that takes sizes, which may depend on the number of rows."""
    return call.kept and call.alike()


def _first(call: _Call) -> bool:
    """Like :func:`_by_element`, but only the first result has to have rows: no others are used for rows."""
    return not call.counted and call.first_kept and call.alike()


def _viewed(call: _Call) -> bool:
    """Accept a view in which adjacent elements of a row are still adjacent."""
    if not call.kept or len(call.given) != 1:
        return False
    (before, rows) = call.given[0]
    block = rows.block(before)
    inner = [_inner(block, one, own) for one, own in call.made]
    return all(places and own.each % places == 0 for places, (_, own) in zip(inner, call.made, strict=True))


def _inner(block: int, tensor: Tensor, rows: Rows) -> int:
    """Return how many places of a row are adjacent if ``block`` elements are; 0 if not a whole number."""
    behind = prod(tensor.shape[rows.dim + 1 :])
    return block // behind if behind and block % behind == 0 else 0


def _sliced(call: _Call) -> bool:
    return not call.depends(call.argument(2, "start")) and _sized(call)


def _along(place: int, default: Any = None) -> _Rule:
    """Return a rule: the operator works along the dimensions in argument ``place``, never along the rows."""

    def rule(call: _Call) -> bool:
        dims = call.argument(place, "dims" if "dims" in call.kwargs else "dim", default)
        along = list(dims) if isinstance(dims, (list, tuple)) else [dims]
        apart = all(rows.dim not in [dim % one.dim() for dim in along] for one, rows in call.given)
        return bool(along) and apart and _by_element(call)

    return rule


def _leading(call: _Call) -> bool:
    """Accept rows in the first dimension, as in batches of images, signals and heads of attention."""
    return call.kept and call.alike() and all(rows.dim == 0 for _, rows in (*call.given, *call.made))


def _convolved(call: _Call) -> bool:
    return len(call.given) == 1 and call.rows(call.args[0]) is not None and _leading(call)


def _before(count: Callable[[_Call], int]) -> _Rule:
    """Return a rule: the operator works in the last ``count`` dimensions, and the rows are in another."""

    def rule(call: _Call) -> bool:
        return all(rows.dim < one.dim() - count(call) for one, rows in call.given) and _by_element(call)

    return rule


def _batch_norm(call: _Call) -> bool:
    """Accept training mode only if channels are rows: each channel has statistics of its own."""
    training = next(one for one in call.args[3:] if isinstance(one, bool))
    rows = call.rows(call.args[0])
    return rows is not None and (not training or rows.dim == 1) and _first(call)


def _looked_up(call: _Call) -> bool:
    """Accept a lookup in a table that has no rows."""
    return call.rows(call.args[0]) is None and _by_element(call)


def _indexed(call: _Call) -> bool:
    rows, indices = call.rows(call.args[0]), call.args[1]
    if rows is not None and (
        any(map(call.rows, indices)) or (rows.dim < len(indices) and indices[rows.dim] is not None)
    ):
        return False
    return _by_element(call)


def _selected(call: _Call) -> bool:
    if call.rows(call.args[0]) is None:
        return _by_element(call)
    return call.rows(call.args[2]) is None and _along(1)(call)


def _gathered(call: _Call) -> bool:
    return call.rows(call.args[0]) == call.rows(call.args[2]) and _along(1)(call)


def _joined(call: _Call) -> bool:
    dim = call.argument(1, "dim", 0)
    return all(dim % one.dim() != rows.dim for one, rows in call.made) and _by_element(call)


def _repeated(call: _Call) -> bool:
    """Accept a repeat that does not repeat rows. A tensor without rows may be repeated once for each row."""
    one, times = call.args[0], call.args[1]
    before = call.rows(one)
    if before is not None:
        return not call.depends(times[before.dim - one.dim()]) and call.kept and call.alike()
    return call.kept and all(rows.each == one.shape[rows.dim - made.dim()] for made, rows in call.made)


def _filled(call: _Call) -> bool:
    """Accept new tensors if only their sizes depend on the number of rows, and not their values."""
    values = [one for one in call.args[1:] if not isinstance(one, (list, tuple))]
    return call.kept and not any(map(call.depends, values))


def _counted_up(call: _Call) -> bool:
    """Accept ``arange`` if its first numbers are the same for any number of rows."""
    steady = len(call.args) == 1 or not any(map(call.depends, (call.args[0], *call.args[2:])))
    return steady and call.kept


_NAMES: dict[_Rule, str] = {
    _by_element: "detach alias lift_fresh lift_fresh_copy _to_copy copy native_dropout bernoulli zeros_like "
    "ones_like full_like empty_like rand_like randn_like mse_loss smooth_l1_loss huber_loss "
    "binary_cross_entropy binary_cross_entropy_with_logits soft_margin_loss glu mm addmm bmm baddbmm "
    "sum mean amax amin prod var std var_mean any all logsumexp linalg_vector_norm argmax argmin max min "
    "t transpose permute unsqueeze squeeze select unbind",
    _sized: "expand split split_with_sizes",
    _first: "nll_loss_forward nll_loss2d_forward _native_batch_norm_legit_no_training",
    _viewed: "view _unsafe_view",
    _sliced: "slice",
    _along(1): "_softmax _log_softmax cumsum cumprod logcumsumexp flip",
    _along(1, -1): "sort",
    _along(2, -1): "topk",
    _along(2, ()): "roll",
    _leading: "max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d adaptive_max_pool2d "
    "adaptive_max_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d upsample_nearest1d upsample_nearest2d "
    "upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d "
    "reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d pixel_shuffle pixel_unshuffle "
    "_scaled_dot_product_flash_attention_for_cpu native_group_norm",
    _convolved: "convolution",
    _before(lambda call: len(call.args[1])): "native_layer_norm _fused_rms_norm",
    _before(lambda call: 2): "tril triu",
    _before(lambda call: len(call.args[1]) // 2): "constant_pad_nd",
    _batch_norm: "native_batch_norm _native_batch_norm_legit",
    _looked_up: "embedding",
    _indexed: "index",
    _selected: "index_select",
    _gathered: "gather scatter scatter_add",
    _joined: "cat stack",
    _repeated: "repeat",
    _filled: "zeros ones full empty rand randn new_zeros new_ones new_full new_empty",
    _counted_up: "arange",
}
_RULES = {name: rule for rule, names in _NAMES.items() for name in names.split()}
