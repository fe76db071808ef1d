"""Makes random programs to export: those of :mod:`program_maker`, and what only exports have.

Only exports have control flow as an operator, backward and other overloads called by hand with arguments
that their schemas allow, sizes and integers that may be symbols, and buffers. Outside of tracing, control
flow is written out in Python, so that eager PyTorch is an independent reference. :mod:`exported_programs`
runs and compares the programs.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from program_maker import HEAD, Maker, Program
from program_templates import EXPRESSIONS

from torchstone.lowering import load as load_registry
from torchstone.torch_internals.operators import OpOverload, schema_of

CONTROL = """

def dense(value):
    return value.clone(memory_format=torch.contiguous_format)


def cond(which, yes, no, given):
    if torch.compiler.is_compiling():
        return torch.cond(which, yes, no, given)
    return (yes if which else no)(*given)


def while_loop(goes_on, body, state):
    if torch.compiler.is_compiling():
        return torch.while_loop(goes_on, body, state)
    while goes_on(*state):
        state = body(*state)
    return state


def scan(step, state, values):
    if torch.compiler.is_compiling():
        return torch._higher_order_ops.scan(step, state, values)
    made = []
    for value in values:
        state, one = step(state, value)
        made.append(one)
    return state, torch.stack(made)


def associative_scan(combine, values):
    # Of no elements PyTorch's operator makes another number of rows; of one row it makes a view.
    if torch.compiler.is_compiling() or not values.numel() or len(values) == 1:
        return torch._higher_order_ops.associative_scan(combine, values, 0, combine_mode="generic")
    made = [values[0]]
    for value in values[1:]:
        made.append(combine(made[-1], value))
    return torch.stack(made)


def each(function, values):
    if torch.compiler.is_compiling():
        return torch._higher_order_ops.map(function, values)
    return torch.stack([function(value) for value in values])
"""
"""Control flow: operators while PyTorch traces, and plain Python otherwise."""

LOOPS: tuple[str, ...] = (
    "cond({x}.sum() > 0, lambda u: u + 1, lambda u: u * 2, ({x},))",
    "cond({b}.any(), lambda u, v: u - v, lambda u, v: u * v + 1, ({x}, {y}))",
    "cond({f}.mean() < {s}, lambda u: u.sin().sum(), lambda u: u.abs().amax(), ({f},))",
    "cond(n > 2, lambda u: u + 1, lambda u: u - 1, ({x},))",
    "cond({x}.shape[0] > {k}, lambda u: u.cos(), lambda u: u.sin(), ({f},))",
    (
        "cond({b}.all(), lambda u: cond(u.sum() > 1, lambda v: v * 3, lambda v: v - 1, (u,)), "
        "lambda u: u.neg(), ({x},))"
    ),
    "cond({f}.sum() > 0, lambda u: {g} + u, lambda u: {g} * u, ({f},))",
    "while_loop(lambda i, u: i < {k}, lambda i, u: (i + 1, (u * 2).to(u.dtype)), (torch.tensor(0), dense({x})))[1]",  # noqa: E501
    "while_loop(lambda i, u: i < n, lambda i, u: (i + 1, u.sin() + i), (torch.tensor(0), dense({f})))[1]",
    "while_loop(lambda u: (u < 9).any(), lambda u: (u.abs() * 2 + 1,), (dense({f}.nan_to_num()),))[0]",
    "while_loop(lambda i, u: (i < u.sum()) & (i < 40), lambda i, u: (i + 1, u - 1), (torch.tensor(0), dense({i})))[0]",  # noqa: E501
    (
        "while_loop(lambda i, u: i < 2, lambda i, u: (i + 1, cond(u.sum() > 0, lambda v: v / 2, "
        "lambda v: v + 1, (u,))), (torch.tensor(0), dense({f})))[1]"
    ),
    "scan(lambda u, v: (u + v, u * v), {x}[0].clone(), {x})[1]",
    "scan(lambda u, v: (u * 0.5 + v, u.sin()), {f}[0].clone(), {f})[0]",
    "scan(lambda u, v: (torch.maximum(u, v), v - u), torch.zeros_like({x}[0]), {x})[1]",
    "scan(lambda u, v: (u @ v, (u + v).sum()), torch.eye(2), {f}.float().reshape(-1, 1, 1).tile(2, 2))[1]",
    "associative_scan(lambda u, v: u + v, {x})",
    "associative_scan(torch.maximum, {f})",
    "associative_scan(lambda u, v: u * v, {f})",
    "each(lambda u: u * 2 + 1, {x})",
    "each(lambda u: u.sum(), {f})",
    "each(lambda u: u.cumsum(0) + {s}, {m})",
    "each(lambda u: scan(lambda v, w: (v + w, v - w), u[0].clone(), u)[1], {m})",
)
"""Control flow on values."""

BACKWARD: tuple[str, ...] = (
    "threshold_backward({f}, {g}, {s})",
    "tanh_backward({f}, {g})",
    "sigmoid_backward({f}, {g})",
    "gelu_backward({f}, {g})",
    "gelu_backward({f}, {g}, approximate='tanh')",
    "silu_backward({f}, {g})",
    "elu_backward({f}, 1.0, 1.0, 1.0, True, {g})",
    # Here and in softshrink's: for NaN, PyTorch's vector loops give 0, and the gradient at an array's end.
    "hardtanh_backward({f}, {g}.nan_to_num(), -1, 1)",
    "hardsigmoid_backward({f}, {g})",
    "hardswish_backward({f}, {g})",
    "softplus_backward({f}, {g}, 1, 20)",
    "leaky_relu_backward({f}, {g}, 0.1, False)",
    "log_sigmoid_backward({f}, {g}, {g}.abs().neg().exp())",
    "mish_backward({f}, {g})",
    "softshrink_backward({f}, {g}.nan_to_num(), 0.5)",
    "hardshrink_backward({f}, {g}, 0.5)",
    "logit_backward({f}, {g}, 0.1)",
    "glu_backward({f}, torch.cat([{f}, {f}], -1), -1)",
    "_softmax_backward_data({f}, {f}.softmax({d}), {d}, {f}.dtype)",
    "_log_softmax_backward_data({f}, {f}.log_softmax({d}), {d}, {f}.dtype)",
    "mse_loss_backward({f}, {f}, {g}, 0)",
    "mse_loss_backward({f}.sum(), {f}, {g}, {n})",
    "smooth_l1_loss_backward({f}, {f}, {g}, 0, 1.0)",
    "huber_loss_backward({f}.sum(), {f}, {g}, {n}, 0.5)",
    (
        "nll_loss_backward({m}[:, 0], {m}, torch.zeros({m}.shape[0], dtype=torch.int64), None, 0, -100, "
        "torch.zeros((), dtype={m}.dtype))"
    ),
    (
        "nll_loss_backward({m}.sum(), {m}, torch.zeros({m}.shape[0], dtype=torch.int64), None, {n}, -100, "
        "torch.ones((), dtype={m}.dtype))"
    ),
    (
        "native_layer_norm_backward({m}, {w}, [{m}.shape[1]], {m}.mean(1, True), {m}.std(1, keepdim=True), "
        "{m}[0], {m}[0], [True, True, True])[{n}]"
    ),
    (
        # For infinite values, PyTorch's formula computes inf - inf where the gradient is infinite.
        "native_group_norm_backward(dense({m}[None].clamp(-9, 9)), dense({m}[None].clamp(-9, 9)), "
        "{m}[None, :, :1].clamp(-9, 9).mean(1), {m}[None, :, :1].clamp(-9, 9).amax(1), "
        "None, 1, {m}.shape[0], {m}.shape[1], 1, [True, False, False])[0]"
    ),
    (
        "native_batch_norm_backward({m}, {w}, {m}[0], {m}[0], {m}[0].abs(), {m}[0], {m}[0].abs() + 1, True, "
        "1e-3, [True, True, True])[{n}]"
    ),
    "embedding_dense_backward({m}, torch.zeros({m}.shape[0], dtype=torch.int64), 3, -1, False)",
    (
        "max_pool2d_with_indices_backward({m}[None, :1, :2], {m}[None], [1, 2], [1, 2], [0, 0], [1, 1], False, "  # noqa: E501
        "torch.zeros_like({m}[None, :1, :2], dtype=torch.int64))"
    ),
    "avg_pool2d_backward({m}[None], {m}[None], [1, 1], [1, 1], [0, 0], False, True, None)",
    "_adaptive_avg_pool2d_backward({m}[None, :1, :1], {m}[None])",
    "reflection_pad1d_backward({m}, {m}[:, 1:-1], [1, 1])",
    "constant_pad_nd({x}, [1, {k}], {s})",
    (
        "convolution_backward({m}[None], {w}[None], {m}[:1, :1][None].expand({w}.shape[0], {w}.shape[0], 1), "
        "None, [1], [0], [1], False, [0], 1, [True, True, False])[{n}]"
    ),
    "select_backward({x}[0], {x}.shape, 0, 0)",
    "slice_backward({x}[1:], {x}.shape, 0, 1, 99, 1)",
    "diagonal_backward({x}.diagonal(), {x}.shape, 0, 0, 1)",
    "unfold_backward({f}.unfold(0, 2, 1), {f}.shape, 0, 2, 1)",
    "_cdist_backward(torch.cdist({m}, {w}), {m}, {w}, 2.0, torch.cdist({m}, {w}))",
    "masked_scatter_backward({f}, {b}, [2])",
    "value_selecting_reduction_backward({f}.amax(0), 0, {f}.argmax(0), {f}.shape, False)",
    "cumprod({f}, 0)",
    "_fused_rms_norm({m}, [{m}.shape[1]], {m}[0], 1e-5)[0]",
    "binary_cross_entropy_backward({f}, {g}.sigmoid(), {f}.sigmoid(), None, 0)",
    "upsample_nearest1d_backward({m}[None], [2 * 1], [1, {m}.shape[0], 1])",
    "rrelu_with_noise_backward({f}, {g}, {g}, 0.1, 0.3, False, False)",
)
"""Calls in ``torch.ops.aten``, most of them backward; ``{n}`` is 0, 1 or 2."""

_NAMES = {
    "dim": ("{d}", "0"),
    "dims": ("[{d}]", "[0, -1]"),
    "size": ("{x}.shape", "[{k}, 2]", "[2, -1]"),
    "reduction": ("0", "1", "2"),
    "approximate": ("'none'", "'tanh'"),
    "rounding_mode": ("'floor'", "'trunc'"),
    "kernel_size": ("[1]", "[2]", "[2, 2]"),
    "stride": ("[1]", "[2, 1]", "1"),
    "padding": ("[0]", "[1]", "[1, 1]"),
    "dilation": ("[1]", "[1, 1]"),
    "eps": ("1e-5", "0.1"),
    "mode": ("'nearest'", "0"),
    "groups": ("1",),
    "normalized_shape": ("{x}.shape[-1:]", "[2]"),
    "reduce": ("'sum'", "'amax'", "'mean'"),
}
"""The texts of arguments, by the argument's name in the schema."""
_KINDS = {
    "Tensor": ("{x}", "{f}", "{x}", "{y}", "{g}", "{i}"),
    "number": ("{s}",),
    "float": ("0.5", "1.0", "-2.0"),
    "int": ("{k}", "{d}", "0", "1"),
    "bool": ("True", "False"),
    "List[int]": ("[{k}]", "[0]", "[1, 1]", "{x}.shape"),
    "List[Tensor]": ("[{x}, {y}]", "[{f}]"),
    "ScalarType": ("{t}",),
    "str": ("'none'",),
    "List[float]": ("[0.5]",),
    "List[bool]": ("[True, True, True]", "[True, False]"),
    "List[Optional[Tensor]]": ("[{i}]", "[None, {i}]", "[{b}]"),
}
"""The texts of other arguments, by the argument's type."""


@dataclass(frozen=True)
class ExportedProgram(Program):
    """A program, and how it is exported.

    ``sizes`` that differ between calls are "named" or "auto" symbols; otherwise they are "fixed". ``buffers``
    are parameters that become buffers of a module: they have the values of the first call, and live on
    between calls. If ``checked``, indices and values are checked. ``weights`` says where the buffers are
    kept.
    """

    sizes: str = "fixed"
    buffers: tuple[str, ...] = ()
    checked: bool = False
    weights: str = "arguments"

    def script(self, backend: str = "torchstone") -> str:
        """Return a script that prints what eager PyTorch and the exported program return for each call."""
        del backend
        calls = "".join(f"    lambda: ({', '.join(call)},),\n" for call in self.calls)
        return f"{self.head}\n\n{self.definition}\n\n{MODEL}\n\ncalls = [\n{calls}]\n{self._steps()}"

    def _steps(self) -> str:
        places = tuple(place for place, name in enumerate(self.parameters) if name in self.buffers)
        settings = "torchstone.config.check_indices = torchstone.config.check_values = True\n" * self.checked
        return (
            f"{settings}eager, model = (Model(program, calls[0](), {places}) for _ in range(2))\n"
            "shapes = model.shapes([call() for call in calls], "
            f'"{self.sizes}")\n'
            "torchstone.export(model, model.rest(calls[0]()), dynamic_shapes=shapes, "
            f'weights="{self.weights}").save("program.stone")\n'
            'loaded = torchstone.load("program.stone")\n'
            "for call in calls:\n"
            "    for function in (eager, loaded):\n"
            "        given = model.rest(call())\n"
            "        torch.manual_seed(7)\n"
            "        try:\n"
            "            print(function(*given), given)\n"
            "        except Exception as error:\n"
            '            print(f"{type(error).__name__}: {error}")\n'
        )


MODEL = '''
import torchstone


class Model(torch.nn.Module):
    """``program`` with the arguments at ``places`` as buffers, of the values that ``given`` has there."""

    def __init__(self, program, given, places):
        super().__init__()
        self.program, self.places = program, places
        for place in places:
            self.register_buffer(f"buffer_{place}", given[place])

    def forward(self, *rest):
        given = list(rest)
        for place in self.places:
            given.insert(place, getattr(self, f"buffer_{place}"))
        return self.program(*given)

    def rest(self, given):
        """The arguments without those that are buffers."""
        return tuple(one for place, one in enumerate(given) if place not in self.places)

    def shapes(self, calls, sizes):
        """``dynamic_shapes`` of ``torch.export``; named ones are equal where they are in every call."""
        Dim, calls = torch.export.Dim, [self.rest(call) for call in calls]

        def dim(place, axis):
            found = [str(call[place].shape[axis]) for call in calls]
            if sizes == "auto":
                return Dim.AUTO
            return Dim("size_" + "_".join(found)) if len(set(found)) > 1 else None

        if sizes == "fixed":
            return None
        dims = [{axis: dim(place, axis) for axis in range(getattr(one, "ndim", 0))} or None
                for place, one in enumerate(calls[0])]
        return {"rest": tuple(dims)}
'''
"""The source of the module that is exported. Scripts contain it too."""


def make_exported(seed: int, number: int) -> ExportedProgram:
    """Make the program ``number`` of a campaign. It is the same each time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _ExportMaker(random.Random(f"{seed} {number}")).program()


class _ExportMaker(Maker):
    families = (
        *(one for one in EXPRESSIONS if one != "data-dependent sizes"),  # exports depend on sizes alone
        *("writes", "views", "pointwise", *("loops", "backward", "overloads") * 3),
    )

    def program(self) -> ExportedProgram:
        made = super().program()
        assert isinstance(made, ExportedProgram)
        return made

    def _beginning(self) -> Program:
        program, chance = super()._beginning(), self._chance
        sizes, checked = chance.choice(["fixed", "named", "auto", "auto"]), chance.random() < 0.2
        tensors = program.parameters[:-2]
        aliased = "*(" in program.calls[0][0]
        buffers: tuple[str, ...] = ()
        if len(tensors) > 1 and not aliased and chance.random() < 0.3:
            sizes, buffers = "fixed", tuple(chance.sample(tensors[1:], chance.randint(1, len(tensors) - 1)))
        first, *others = program.calls[:3]
        if sizes == "fixed":
            others = [first, first]
        calls = [first]
        for place, other in enumerate(others, 1):
            pairs = zip(program.parameters, first[:-2], other[:-2], strict=False)
            given = [one if name in buffers else _like(one, text, place) for name, one, text in pairs]
            calls.append((*given, *first[-2:]))  # numbers are part of a program
        return ExportedProgram(
            program.parameters, (), "a", tuple(calls), drawn=program.drawn, head=HEAD + CONTROL, sizes=sizes,
            buffers=buffers, checked=checked, weights=chance.choice(["arguments", "arguments", "constants"]),
        )  # fmt: skip

    def _statement(self, family: str) -> str:
        chance = self._chance
        if family == "loops":
            return f"t{self._made()} = {self._filled(chance.choice(LOOPS))}"
        if family == "backward":
            template = chance.choice(BACKWARD).replace("{n}", chance.choice("012"))
            return f"t{self._made()} = torch.ops.aten.{self._filled(template)}"
        if family == "overloads":
            return f"t{self._made()} = {self._filled(_call(chance.choice(_overloads()), chance))}"
        # Clamp: a float that an integer dtype cannot hold becomes any integer.
        return _TO_INTEGERS.sub(r".clamp(-99, 99).nan_to_num()\g<0>", super()._statement(family))

    def _add(self, statement: str) -> bool:
        """Add a statement. Try calls of overloads in a child process first: they may crash PyTorch."""
        if "torch.ops." in statement and not self._survives(statement):
            return False
        return super()._add(statement)

    def _survives(self, statement: str) -> bool:
        """Whether the statement runs in every call and gives the same twice, so reads no unwritten memory."""
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                for state in self._states:
                    made = [dict(state), dict(state)]
                    for one in made:
                        exec(statement, one)
                    name = statement.partition(" = ")[0]
                    torch.testing.assert_close(made[0][name], made[1][name], rtol=0, atol=0, equal_nan=True)
                os._exit(0)
            os._exit(1)
        return os.waitpid(child, 0)[1] == 0


def _like(first: str, other: str, place: int) -> str:
    """Return the text of the tensor ``other``, with the dtype of ``first`` and with values of its own."""
    dtype = re.search(r"torch\.\w+", first)
    assert dtype is not None
    return re.sub(r"made\(\d?(\d),", rf"made({place}\1,", re.sub(r"torch\.\w+", dtype[0], other))


_TO_INTEGERS = re.compile(r"\.to\(torch\.int\d+\)")
_MADE: list[OpOverload] = []


def _overloads() -> list[OpOverload]:
    """Return the registry's ATen overloads that write nothing, draw nothing and return only tensors."""
    if not _MADE:
        _MADE.extend(one.overload for one in load_registry() if _is_plain(one.overload))
    return _MADE


def _is_plain(overload: OpOverload) -> bool:
    schema = schema_of(overload)
    drawn = torch.Tag.nondeterministic_seeded in overload.tags
    unwritten = "empty" in schema.name or "topk" in schema.name  # topk need not sort
    kinds = {str(one.real_type) for one in schema.returns}
    return (
        overload.namespace == "aten"
        and not (schema.is_mutable or drawn or unwritten)
        and bool(kinds)
        and kinds <= {"Tensor", "List[Tensor]"}
    )


def _call(overload: OpOverload, chance: random.Random) -> str:
    """Return a call of the overload as text, with holes as in the templates."""
    schema = schema_of(overload)
    given = list(_arguments(schema, chance))
    text = f"torch.ops.{overload}({', '.join(given)})"
    returns = [str(one.real_type) for one in schema.returns]
    if returns == ["Tensor"]:
        return text
    return f"{text}[{chance.randrange(len(returns)) if 'List' not in returns[0] else -1}]"


def _arguments(schema: Any, chance: random.Random) -> Iterator[str]:
    for argument in schema.arguments:
        kind = str(argument.real_type)
        optional = kind.startswith("Optional[")
        kind = kind.removeprefix("Optional[").removesuffix("]") if optional else kind
        if argument.has_default_value() and chance.random() < 0.6:
            continue
        value = "None"
        if not optional or chance.random() < 0.6:
            value = chance.choice(_NAMES.get(argument.name, _KINDS.get(kind, ("None",))))
        positional = not argument.kwarg_only and not argument.has_default_value()
        yield value if positional else f"{argument.name}={value}"
