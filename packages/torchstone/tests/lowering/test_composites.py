"""Each composite replaced by name: another implementation gives the same results.

The replacement sees only the composite's name, attributes and operands, as a vendor's compiler does. It calls
eager PyTorch's operator, so the test fails if the attributes do not suffice for the call. The rest of the
program does not change: one program computes the composites' operands, another one takes their results as
arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.nn import functional as F
from torch.nn.utils import rnn

import torchstone
from composite_replacements import SPECIAL, Attributes, replacement
from operator_samples import load_samples
from optest.core.comparator import compare
from torchstone import hlo, lowering
from torchstone.compiler.graphs import to_numpy
from torchstone.compiler.passes import lowered
from torchstone.compiler.pipeline import Unit
from torchstone.compiler.support import survey
from torchstone.dtypes import FLOAT32, INT64
from torchstone.hlo._mlir import func, ir, jax_interpreters
from torchstone.hlo.portable import serialize
from torchstone.lowering import Lowering
from torchstone.parity.operators import Sample, graph_of_calls, to_tensor
from torchstone.runtime import get_engine

aten = torch.ops.aten
TABLE = Path(__file__).parents[4] / "docs" / "composites.md"
REGISTRY = lowering.load()
SAMPLES = load_samples()


# Composites as another compiler sees them ------------------------------------------------------


@dataclass
class Call:
    """A composite operation of ``main``."""

    name: str
    version: int
    attributes: Attributes
    present: list[bool]

    @classmethod
    def of(cls, operation: Any) -> Call:
        given = {a.name: python_value(a.attr) for a in operation.attributes["composite_attributes"]}
        present = given.pop("operands", [True] * len(operation.operands))
        name = operation.attributes["name"].value.removeprefix("torchstone.")
        return cls(name, operation.attributes["version"].value, given, present)

    def results(self, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the replacement; return its results in the order and dtypes that the composite declares."""
        feed = iter(operands)
        made = replacement(self.name)(
            [next(feed) if there else None for there in self.present], self.attributes
        )
        listed = [made] if isinstance(made, torch.Tensor) else list(made)
        declared = self.attributes.get("dtypes", [str(result.dtype)[6:] for result in listed])
        assert len(listed) >= len(declared)
        return [
            result.to(getattr(torch, dtype))
            for result, dtype in zip(listed, declared, strict=False)
            if dtype != "none"
        ]


def python_value(attribute: Any) -> Any:
    if isinstance(attribute, ir.ArrayAttr):
        return [python_value(item) for item in attribute]
    return attribute.value


def main_of(module: Any) -> Any:
    return next(op for op in module.body.operations if op.name.value == "main")


def composites(function: Any) -> list[Any]:
    found = [op for op in function.entry_block.operations if op.operation.name == "stablehlo.composite"]
    return [op for op in found if op.attributes["name"].value.startswith("torchstone.")]


def set_results(module: Any, values: Sequence[Any]) -> None:
    """Make ``main`` return ``values``, and declare the arguments that its block has."""
    function = main_of(module)
    block = function.entry_block
    old = list(block.operations)[-1]
    with ir.InsertionPoint(old), ir.Location.unknown():
        func.ReturnOp(values)
    old.operation.erase()
    retype(function, [value.type for value in values])


def retype(function: Any, results: Sequence[Any]) -> None:
    inputs = [argument.type for argument in function.entry_block.arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
    for name in ("res_attrs", "arg_attrs"):
        if name in function.attributes:
            del function.attributes[name]


def run(module: Any, arguments: Sequence[Any]) -> list[numpy.ndarray[Any, Any]]:
    code = serialize(module, hlo.resolve_version("current"))
    return [buffer.to_numpy() for buffer in get_engine().compile(code)(*arguments)]


def replaced_results(built: hlo.Module, arguments: Sequence[Any]) -> tuple[list[Call], list[Any], list[Any]]:
    """The composites of ``main``, its results, and its results with all of them replaced."""
    with built.context:
        code = jax_interpreters.module_to_bytecode(built.op)
        whole, before, after = (ir.Module.parse(code, context=built.context) for _ in range(3))
        calls = [Call.of(operation) for operation in composites(main_of(whole))]
        operands = [list(operation.operands) for operation in composites(main_of(before))]
        flat = [value for values in operands for value in values]
        set_results(before, flat)
        given = iter(map(to_tensor, run(before, arguments)))
        made: list[torch.Tensor] = []
        for call, values in zip(calls, operands, strict=True):
            made += call.results([next(given) for _ in values])
        function = main_of(after)
        for operation in composites(function):
            for result in list(operation.results):
                argument = function.entry_block.add_argument(result.type, ir.Location.unknown())
                result.replace_all_uses_with(argument)
            operation.operation.erase()
        returned = list(list(function.entry_block.operations)[-1].operands)
        retype(function, [value.type for value in returned])
        return calls, run(whole, arguments), run(after, [*arguments, *map(to_numpy, made)])


# The pass -------------------------------------------------------------------------------------


def program(entry: Lowering) -> tuple[hlo.Module, list[Any], Sample] | None:
    """Return a module whose ``main`` holds a composite, its arguments, and the sample that it came from."""
    preferred = [dtype for dtype in (FLOAT32, INT64) if dtype in entry.dtypes]
    dtype = (preferred or sorted(entry.dtypes, key=str))[0]
    for sample in SAMPLES[entry.overload].make(dtype.torch):
        try:
            entry.overload(*sample.args, **sample.kwargs)
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            continue  # PyTorch does not take this sample
        graph, inputs = graph_of_calls([(entry.overload, sample)])
        found = survey(graph)
        if found.unsupported or found.seeded:
            continue
        module = lowered(Unit(graph))
        with module.context:
            if composites(main_of(module.op)):
                return module, [to_numpy(tensor) for tensor in inputs], sample
    return None


def documented() -> dict[str, set[str]]:
    """Composites of the generated table with the overloads that emit them."""
    rows = [line.split("|") for line in TABLE.read_text("utf-8").splitlines() if line.startswith("| `torch")]
    return {
        cells[1].strip(" `").removeprefix("torchstone."): set(re.findall(r"`([^`]+)`", cells[-2]))
        for cells in rows
    }


def emitters() -> list[object]:
    """Return the lowerings that emit a composite; ``make test`` runs only the first one of each name."""
    tables, emitted, found = documented(), set[str](), list[object]()
    for entry in REGISTRY:
        overload = entry.name.removeprefix("aten.")
        names = {name for name, overloads in tables.items() if overload in overloads}
        if names and entry.overload in SAMPLES:
            marks = [pytest.mark.conformance] if names <= emitted else []
            found.append(pytest.param(entry, id=entry.name, marks=marks))
            emitted |= names
    return found


@pytest.mark.sampled(36)
@pytest.mark.parametrize("entry", emitters())
def test_replaced_by_name_it_still_agrees(entry: Lowering) -> None:
    found = program(entry)
    assert found is not None, "no sample of it holds a composite"
    module, arguments, sample = found
    calls, expected, actual = replaced_results(module, arguments)
    assert {call.name for call in calls} <= documented().keys()
    assert {call.version for call in calls} == {1}
    if sample.canonical is not None:
        expected, actual = (
            [to_numpy(tensor) for tensor in sample.determined([to_tensor(array) for array in arrays])]
            for arrays in (expected, actual)
        )
    comparisons = [compare(got, want) for got, want in zip(actual, expected, strict=True)]
    assert all(one.passed for one in comparisons), "\n".join(one.describe() for one in comparisons)


def test_every_documented_composite_is_replaced() -> None:
    tested = {
        name
        for name, overloads in documented().items()
        if overloads & {entry.name.removeprefix("aten.") for entry in REGISTRY}
    }
    assert tested == documented().keys()


def test_a_wrong_replacement_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test uses the replacement's results: a wrong replacement makes the program's results wrong."""
    monkeypatch.setitem(SPECIAL, "gelu", lambda operands, _: operands[0] * 2)
    found = program(next(entry for entry in REGISTRY if entry.overload is aten.gelu.default))
    assert found is not None
    _, expected, actual = replaced_results(*found[:2])
    numpy.testing.assert_array_equal(actual[0], found[1][0] * 2)
    assert not compare(actual[0], expected[0]).passed


# What stays whole -----------------------------------------------------------------------------

X = torch.linspace(0.1, 0.9, 24).reshape(4, 6)
Y = X.flip(1).sqrt()
LABELS, SIGNS = torch.tensor([0, 3, 1, 5]), torch.tensor([1, -1, 1, 1])
WHOLE: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "circular_pad": lambda x, _: F.pad(x, (1, 1), mode="circular"),
    "cosine_embedding_loss": lambda x, y: F.cosine_embedding_loss(x, y, SIGNS),
    "cross_entropy_loss": lambda x, _: F.cross_entropy(x, LABELS, label_smoothing=0.1),
    "diff": lambda x, _: x.diff(),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "fftfreq": lambda x, _: x * torch.fft.fftfreq(6),
    "fftshift": lambda x, _: torch.fft.fftshift(x),
    "gaussian_nll_loss": lambda x, y: F.gaussian_nll_loss(x, y, 0.5),
    "hinge_embedding_loss": lambda x, _: F.hinge_embedding_loss(x, SIGNS[:, None]),
    "ifftshift": lambda x, _: torch.fft.ifftshift(x),
    "kl_div": lambda x, y: F.kl_div(x, y, reduction="batchmean"),
    "l1_loss": lambda x, y: F.l1_loss(x, y),
    "margin_ranking_loss": lambda x, y: F.margin_ranking_loss(x, y, SIGNS[:, None]),
    "multilabel_soft_margin_loss": lambda x, y: F.multilabel_soft_margin_loss(x, y),
    "one_hot": lambda x, _: F.one_hot((x * 3).long(), 3),
    "pack_padded_sequence": lambda x, _: rnn.pack_padded_sequence(x, torch.tensor([4, 3, 3, 2, 1, 1])).data,
    "poisson_nll_loss": lambda x, y: F.poisson_nll_loss(x, y, full=True),
    "reflect_pad": lambda x, _: F.pad(x, (1, 1), mode="reflect"),
    "tensordot": lambda x, y: torch.tensordot(x, y, dims=([1], [1])),
    "triplet_margin_loss": lambda x, y: F.triplet_margin_loss(x, y, y.flip(0)),
    "unbind": lambda x, _: x.unbind(),
    "view_as_real": lambda x, y: torch.view_as_real(torch.complex(x, y)),
}
"""By composite: a function that PyTorch would decompose, but that is exported as this composite."""


class Cells(torch.nn.Module):
    """Multi-head attention and one step of each recurrent cell."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(6, 2)
        self.cells = torch.nn.ModuleList(
            [torch.nn.LSTMCell(6, 3), torch.nn.GRUCell(6, 3), torch.nn.RNNCell(6, 3)]
        )

    def forward(self, x: torch.Tensor) -> list[object]:
        return [self.attention(x, x, x), *(cell(x) for cell in self.cells)]


def names_in(program: torchstone.Program) -> set[str]:
    """The composites of a program's ``main``."""
    main = program.mlir_text().partition("func.func private")[0]
    return set(re.findall(r'stablehlo\.composite "torchstone\.(\w+)"', main))


def test_what_pytorch_composes_leaves_whole() -> None:
    program = torchstone.export(lambda x, y: [made(x, y) for made in WHOLE.values()], (X, Y))
    assert names_in(program) == WHOLE.keys()
    found, expected = program(X, Y), [made(X, Y) for made in WHOLE.values()]
    packed = [*WHOLE].index("pack_padded_sequence")
    found[packed] = found[packed][: len(expected[packed])]  # the rest is padding
    torch.testing.assert_close(found, expected)


def test_attention_and_cells_leave_whole() -> None:
    program = torchstone.export(Cells().eval(), (X,))
    assert names_in(program) == {"multi_head_attention", "lstm_cell", "gru_cell", "rnn_tanh_cell"}


def test_dropout_is_no_part_of_an_attention_that_leaves_whole() -> None:
    model = torch.nn.MultiheadAttention(6, 2, dropout=0.5)
    assert "multi_head_attention" in names_in(torchstone.export(model.eval(), (X, X, X)))
    assert "multi_head_attention" not in names_in(torchstone.export(model.train(), (X, X, X)))


def test_composites_in_half_precision_round_once() -> None:
    x, y = torch.linspace(0.1, 0.9, 200, dtype=torch.float16), torch.full((200,), 0.5, dtype=torch.float16)
    found = torchstone.export(lambda x, y: F.kl_div(x, y, reduction="sum"), (x, y))(x, y)
    assert torch.equal(found, F.kl_div(x.double(), y.double(), reduction="sum").half())
