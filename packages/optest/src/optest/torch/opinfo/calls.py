"""Calls: a function of tensors with the tensors it is called on, single or combined into one program.

This is what drivers see of a suite. ``Call`` is plain PyTorch: whoever can run or compile
a function of tensors can answer it. Not here: where calls come from (``phases``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...backends.driver import Answer
from ...core.interrupt import is_ctrl_c
from ...errors import InputWritten

Tensor = torch.Tensor
Function = Callable[..., Sequence[Tensor]]

FORWARD, GRADIENT, SECOND_ORDER, FORWARD_MODE = "forward", "gradient", "second_order", "forward_mode"


@dataclass(frozen=True)
class Call:
    """A function and its tensors; ``function(*tensors)`` returns the outputs, all dense tensors.

    ``kind`` says what the answer consists of. ``forward``: the outputs. ``gradient``: the gradients
    of the outputs, weighted by ``weights`` (one per output), for the tensors at ``wrt``.
    ``second_order``: the gradients of those gradients, weighted by ``second_weights``.
    ``forward_mode``: the outputs' derivatives along ``weights`` (one per tensor at ``wrt``).

    If ``resized`` is set, the call is compiled for ``tensors`` but runs on ``resized``; the compiled
    program must take any size of the first dimensions in which the two differ.
    """

    function: Function
    tensors: tuple[Tensor, ...]
    kind: str = FORWARD
    wrt: tuple[int, ...] = ()
    weights: tuple[Tensor, ...] = ()
    second_weights: tuple[Tensor, ...] = ()
    resized: tuple[Tensor, ...] = ()
    results: int | None = None
    """How many tensors the answer has; None if that is unknown, as for a call that must raise."""
    writes: tuple[int, ...] = ()
    """The indices of the operands that eager PyTorch writes into, such as running statistics."""

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """Everything that the answer depends on: the tensors, then the weights."""
        return (*self.tensors, *self.weights, *self.second_weights)

    def map(self, change: Callable[[Tensor], Tensor], function: Function | None = None) -> Call:
        """Return the call with ``change`` applied to all its tensors, and with ``function`` if given."""
        groups = (self.tensors, self.weights, self.second_weights, self.resized)
        tensors, weights, second, resized = (tuple(change(one) for one in group) for group in groups)
        return replace(
            self,
            function=function or self.function,
            tensors=tensors,
            weights=weights,
            second_weights=second,
            resized=resized,
        )

    @property
    def run(self) -> Call:
        """The call with the tensors that it runs on."""
        return replace(self, tensors=self.resized, resized=()) if self.resized else self


def evaluate(call: Call, operands: Sequence[Tensor] | None = None) -> list[Tensor]:
    """Return the answer of ``call``, computed by plain PyTorch on ``operands`` (the call's own if None)."""
    given = call.operands if operands is None else tuple(operands)
    tensors, rest = given[: len(call.tensors)], given[len(call.tensors) :]
    weights, second = rest[: len(call.weights)], rest[len(call.weights) :]
    if call.kind == FORWARD:
        with torch.no_grad():
            return list(call.function(*tensors))
    if call.kind == FORWARD_MODE:
        return _along(call, tensors, weights)
    with torch.enable_grad():
        leaves = [tensors[place].detach().requires_grad_() for place in call.wrt]
        outputs = call.function(*_replaced(tensors, call.wrt, leaves))
        if call.kind == GRADIENT:
            return _gradients(outputs, leaves, weights)
        weights = tuple(one.detach().requires_grad_() for one in weights)
        first = _gradients(outputs, leaves, weights, create_graph=True)
        counted = [(one, weight) for one, weight in zip(first, second, strict=True) if one.requires_grad]
        return _gradients([one for one, _ in counted], [*leaves, *weights], [one for _, one in counted])


def _along(call: Call, tensors: Sequence[Tensor], directions: Sequence[Tensor]) -> list[Tensor]:
    """Return the outputs' derivatives along ``directions``."""

    def inner(*leaves: Tensor) -> tuple[Tensor, ...]:
        return tuple(call.function(*_replaced(tensors, call.wrt, leaves)))

    leaves = tuple(tensors[place] for place in call.wrt)
    with torch.no_grad():
        return list(torch.func.jvp(inner, leaves, tuple(directions))[1])


def _gradients(
    outputs: Sequence[Tensor],
    leaves: Sequence[Tensor],
    weights: Sequence[Tensor],
    *,
    create_graph: bool = False,
) -> list[Tensor]:
    """Return the gradients for ``leaves``; zeros for a leaf that no output depends on.

    The outputs may be on other devices than their weights.
    """
    if not outputs:
        return [torch.zeros_like(leaf) for leaf in leaves]
    weights = [weight.to(one.device) for one, weight in zip(outputs, weights, strict=True)]
    found = torch.autograd.grad(outputs, leaves, weights, allow_unused=True, create_graph=create_graph)
    return [
        torch.zeros_like(leaf) if one is None else dense(one) for leaf, one in zip(leaves, found, strict=True)
    ]


def _replaced(tensors: Sequence[Tensor], places: Sequence[int], new: Sequence[Tensor]) -> list[Tensor]:
    changed = list(tensors)
    for place, one in zip(places, new, strict=True):
        changed[place] = one
    return changed


def dense(tensor: Tensor) -> Tensor:
    """Return the tensor as a plain strided one, without sparsity or quantization."""
    if tensor.layout is not torch.strided:
        return tensor.to_dense()
    return tensor.dequantize() if tensor.is_quantized else tensor


def together(calls: Sequence[Call]) -> tuple[Function, list[Tensor]]:
    """Return one function that answers all ``calls``, and the tensors that it takes.

    Forward calls share one ``torch.no_grad`` block. Each such block adds operations to the program,
    and makes ``torch.export`` generate the program's code once more.
    """
    operands = [tensor for call in calls for tensor in call.operands]

    def every(*given: Tensor) -> list[Tensor]:
        feed = iter(given)
        shares = [[next(feed) for _ in call.operands] for call in calls]
        if all(call.kind == FORWARD for call in calls):
            with torch.no_grad():
                return [
                    one for call, share in zip(calls, shares, strict=True) for one in call.function(*share)
                ]
        return [one for call, share in zip(calls, shares, strict=True) for one in evaluate(call, share)]

    return every, operands


def merged(calls: Sequence[Call]) -> Call:
    """Combine gradient calls into one; its function runs the forward functions of all of them."""
    sizes = [len(call.tensors) for call in calls]
    starts = [sum(sizes[:place]) for place in range(len(sizes))]

    def function(*tensors: Tensor) -> list[Tensor]:
        feed = iter(tensors)
        return [one for call in calls for one in call.function(*[next(feed) for _ in call.tensors])]

    return Call(
        function,
        tuple(one for call in calls for one in call.tensors),
        GRADIENT,
        tuple(start + place for start, call in zip(starts, calls, strict=True) for place in call.wrt),
        tuple(one for call in calls for one in call.weights),
    )


def differentiated(function: Function, calls: Sequence[Call], repeats: int) -> list[list[Tensor]]:
    """Return the gradients of ``calls`` in each of ``repeats`` runs.

    ``function`` is the compiled function of the call that :func:`merged` returns. Raises
    :class:`InputWritten` if it changes operands that eager PyTorch only reads.
    """
    runs = []
    for _ in range(repeats):
        given = [call.map(copied) for call in calls]
        runs.append(evaluate(replace(merged(given), function=function)))
        for call, original in zip(given, calls, strict=True):
            require_unwritten("the compiled call", call, original)
    return runs


def halved(
    calls: Sequence[Call],
    run: Callable[[Sequence[Call]], tuple[Sequence[Sequence[Any]], Answer]],
    failed: Callable[[BaseException], Answer],
) -> list[Answer]:
    """Answer ``calls`` with one program; if that fails, split them into halves and answer each half.

    If the number of results of any call is unknown, the calls run one by one. ``run`` returns all
    outputs of every run of the program, and an answer without outputs that holds what the calls share,
    such as times. ``failed`` makes an answer from the exception of a single call.
    """
    if not calls:
        return []
    sizes = [call.results for call in calls if call.results is not None]
    if len(calls) > 1 and len(sizes) < len(calls):
        return [one for call in calls for one in halved([call], run, failed)]
    problem: BaseException | None = None
    try:
        runs, shared = run(calls)
    except BaseException as error:  # whatever a backend raises is its answer
        if is_ctrl_c(error):
            raise
        problem = error
    else:
        sizes = sizes or [len(runs[0])]
        expected = sum(sizes)
        wrong = next((len(outputs) for outputs in runs if len(outputs) != expected), expected)
        if wrong != expected:
            problem = RuntimeError(f"{wrong} tensors came back; there must be {expected}")
    if problem is not None:
        if len(calls) == 1:
            return [failed(problem)]
        middle = len(calls) // 2
        return [*halved(calls[:middle], run, failed), *halved(calls[middle:], run, failed)]
    seconds = {name: taken / len(calls) for name, taken in shared.seconds.items()}
    answers, start = [], 0
    for size in sizes:
        mine = [one for outputs in runs for one in outputs[start : start + size]]
        answers.append(replace(shared, outputs=mine, seconds=seconds))
        start += size
    return answers


def written(call: Call, original: Call) -> list[int]:
    """Return the indices of the operands that differ from the original's in any bit."""
    pairs = zip(call.run.operands, original.run.operands, strict=True)
    return [place for place, pair in enumerate(pairs) if not same_bits(*pair)]


def require_unwritten(whose: str, call: Call, original: Call) -> None:
    """Raise :class:`InputWritten` if ``call`` has changed operands that eager PyTorch only reads."""
    places = [place for place in written(call, original) if place not in original.writes]
    if places:
        raise InputWritten(
            f"{whose} wrote into {' and '.join(f'operand {place}' for place in places)}, "
            "which eager PyTorch only reads"
        )


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors, on any devices, have the same bits: NaN equals itself, -0.0 differs from 0.0."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_meta or other.is_meta:
        return True
    return torch.equal(_bits(one), _bits(other))


def _bits(tensor: Tensor) -> Tensor:
    """Return the tensor's elements as bytes on the CPU; a sparse or quantized tensor is converted first."""
    plain = (tensor.int_repr() if tensor.is_quantized else dense(tensor)).detach().cpu()
    flat = torch.empty(plain.numel(), dtype=plain.dtype)  # a single element may have any stride
    return flat.copy_(plain.reshape(-1)).view(torch.uint8)


def copied(tensor: Tensor) -> Tensor:
    """Return a copy of the tensor that keeps its strides, even overlapping ones."""
    if not _is_plain(tensor):
        return tensor.detach().clone()
    memory = tensor.untyped_storage().clone()
    fresh = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return fresh.set_(memory, tensor.storage_offset(), tensor.size(), tensor.stride())


def placed(tensor: Tensor, device: str) -> Tensor:
    """Return a copy on ``device`` that keeps the strides, even overlapping ones.

    A meta tensor stays where it is: samples have one only to check that it is refused.
    """
    if tensor.is_meta:
        return tensor
    if torch.device(device) == tensor.device or not _is_plain(tensor):
        return copied(tensor).to(device)
    count = tensor.untyped_storage().nbytes() // tensor.itemsize
    memory = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    memory.set_(tensor.untyped_storage(), 0, (count,), (1,))
    return memory.to(device).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _is_plain(tensor: Tensor) -> bool:
    """Whether the tensor's memory holds its elements as they are."""
    return not (
        tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg()
    )
