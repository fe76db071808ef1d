"""Random programs: each is made from a seed and a number, as the text of a function and of four calls.

A statement is added only if eager PyTorch accepts it in all four calls. A few programs end with a statement
that eager refuses. The sizes and the integer differ from call to call, so that PyTorch makes them symbolic.
The fourth call has a float of another type or value. The templates of statements are in
:mod:`program_templates`; :mod:`compiled_programs` runs and compares the programs.
"""

from __future__ import annotations

import random
import string
import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from program_templates import EXPRESSIONS, RANDOM, RETURNS, STATEMENTS

HEAD = '''\
import torch
import torch.nn.functional as F


def made(seed, shape, dtype, form="plain", special=False):
    """A tensor of random values, in memory as ``form`` says."""
    generator = torch.Generator().manual_seed(seed)
    wide = [*shape]
    if form in ("steps", "part") and wide:
        wide[-1] = 2 * wide[-1] + 1
    if form == "transposed":
        wide.reverse()
    if form == "expanded" and wide:
        wide[0] = min(wide[0], 1)
    if dtype == torch.bool:
        values = torch.rand(wide, generator=generator) > 0.5
    elif dtype.is_floating_point:
        values = torch.randn(wide, generator=generator, dtype=torch.float64)
        if special and values.numel():
            odd = torch.tensor([0.0, -0.0, 1.0, -2.0, float("inf"), float("nan"), 1e30])
            chosen = torch.randint(3 * len(odd), wide, generator=generator)
            values = torch.where(chosen < len(odd), odd[chosen % len(odd)], values)
        values = values.to(dtype)
    else:
        values = torch.randint(0 if dtype == torch.uint8 else -5, 6, wide, generator=generator).to(dtype)
    if form == "steps" and shape:
        values = values[..., 1::2]
    elif form == "part" and shape:
        values = values[..., 1 : 1 + shape[-1]]
    elif form == "transposed" and shape:
        values = values.permute(*reversed(range(len(shape))))
    elif form == "expanded" and shape:
        values = values.expand(shape)
    return values
'''
"""The source with which every program begins."""

_NAMES = ("a", "b", "c", "e")
_DTYPES = (
    *("float32", "float32", "float32", "float64", "int64", "int64"),
    *("int32", "bool", "float16", "uint8", "bfloat16"),
)
_FORMS = ("plain", "plain", "plain", "steps", "part", "transposed", "expanded")
_SHAPES = ("pq", "pq", "qr", "p", "q", "1q", "p1", "", "pqr", "pp", "0q", "rpq")
_SCALARS = (
    *("2", "0.5", "-1", "3", "True", "-1.5", "1", "0", "2.0"),
    *("n", "n", "s", "s", "n + 1", "s * 2", "-n", "s + n"),
)
_INTEGERS = (torch.int64, torch.int32, torch.uint8)
_MOST_ELEMENTS = 2000


@dataclass(frozen=True)
class Program:
    """A function of ``parameters``, and the calls that it is tried with.

    Each call is the text of its arguments, in order. With ``gradients``, inputs of floating dtype require
    them. With ``drawn``, values depend on random numbers. ``context`` is the mode that the calls are made in,
    such as ``no_grad``. ``head`` is the source before the function.
    """

    parameters: tuple[str, ...]
    statements: tuple[str, ...]
    result: str
    calls: tuple[tuple[str, ...], ...]
    gradients: bool = False
    drawn: bool = False
    context: str = ""
    head: str = HEAD

    @property
    def definition(self) -> str:
        lines = [*self.statements, f"return {self.result}"]
        return f"def program({', '.join(self.parameters)}):\n" + "".join(f"    {line}\n" for line in lines)

    def script(self, backend: str = "torchstone") -> str:
        """Return a script that prints what eager PyTorch and compiled code return for each call."""
        calls = "".join(f"    lambda: ({', '.join(call)},),\n" for call in self.calls)
        return (
            f"{self.head}\n\n{self.definition}\n\ncalls = [\n{calls}]\n"
            f'compiled = torch.compile(program, backend="{backend}")\n'
            f"gradients, context = {self.gradients}, {self.context!r}\n"
            "for call in calls:\n"
            "    for function in (program, compiled):\n"
            "        given = call()\n"
            "        floats = [x for x in given if isinstance(x, torch.Tensor) and x.is_floating_point()]\n"
            "        for x in floats if gradients else ():\n"
            "            x.requires_grad_()\n"
            "        try:\n"
            "            with getattr(torch, context)() if context else torch.enable_grad():\n"
            "                print(function(*given), given)\n"
            "        except Exception as error:\n"
            '            print(f"{type(error).__name__}: {error}")\n'
        )


def load(program: Program) -> dict[str, Any]:
    """Execute a program's source, and return the names that it defines, such as ``program`` and ``made``."""
    names: dict[str, Any] = {}
    exec(compile(program.head + program.definition, "<random program>", "exec"), names)
    return names


def make(seed: int, number: int) -> Program:
    """Make the program ``number`` of a campaign. It is the same each time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Maker(random.Random(f"{seed} {number}")).program()


class Maker:
    """Makes one program from the families of expressions, with one random generator."""

    families = (*EXPRESSIONS, "writes", "views", "pointwise", "reductions")

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._program = self._beginning()
        self._states: list[dict[str, Any]] = []
        self._restart()

    def program(self) -> Program:
        wanted = self._chance.randint(2, 7)
        family = ""
        for _ in range(wanted * 8):
            if len(self._program.statements) >= wanted:
                break
            if not family or self._chance.random() < 0.6:
                family = self._chance.choice(self.families)
            self._add(self._statement(family))
        if self._chance.random() < 0.06:
            self._add_random()
        result = next(filter(self._is_result, (self._result() for _ in range(20))), "a")
        if self._chance.random() < 0.06:
            refused = self._refused()
            made = refused.partition(" = ")[0] if refused.startswith("t") and " = " in refused else "a"
            result = f"({result}, {made})"
            self._program = replace(self._program, statements=(*self._program.statements, refused))
        return replace(self._program, result=result)

    def _is_result(self, text: str) -> bool:
        try:
            for state in self._states:
                eval(text, dict(state))
        except Exception:  # noqa: BLE001  # t() of three dimensions
            return False
        return True

    def _beginning(self) -> Program:
        chance = self._chance
        names = _NAMES[: chance.randint(1, 4)]
        first = {size: chance.choice([2, 3, 4, 5]) for size in "pqr"}
        sizes = [first]
        for odd in (0.03, 0.1):
            sizes.append({size: _another(chance, sizes[-1][size], odd) for size in "pqr"})
        if chance.random() < 0.3:  # one size stays, the others change
            kept = chance.choice("pqr")
            sizes = [{**one, kept: first[kept]} for one in sizes]
        sizes.append(sizes[-1])
        kinds = [(chance.choice(_SHAPES), chance.choice(_DTYPES), chance.choice(_FORMS)) for _ in names]
        special = chance.random() < 0.15
        other = chance.choice(_DTYPES) if chance.random() < 0.15 else None  # of the first, in the third call
        twice = len(names) > 1 and chance.random() < 0.06
        numbers = [(2, "0.5"), (3, "1.5"), (chance.choice([1, 4, 5]), "0.5")]
        numbers.append((chance.choice([0, 1, 2, 6]), chance.choice(["2", "True", "-0.0", "0.25", "1", "-1"])))
        calls = []
        for place, (size, (n, s)) in enumerate(zip(sizes, numbers, strict=True)):
            given = []
            for position, (shape, dtype, form) in enumerate(kinds):
                dims = tuple(size.get(one, 0) if one.isalpha() else int(one) for one in shape)
                kind = other if other and place == 2 and position == 0 else dtype
                rest = f', "{form}"' * (form != "plain" or special) + ", True" * special
                given.append(f"made({10 * place + position}, {dims}, torch.{kind}{rest})")
            if twice:
                given[:2] = [f"*(lambda x: (x, x.view_as(x)))({given[0]})"]
            calls.append((*given, str(n), s))
        context = chance.choice(["", "", "", "", "", "", "no_grad", "inference_mode"])
        gradients = not context and not twice and chance.random() < 0.5
        return Program((*names, "n", "s"), (), "a", tuple(calls), gradients, False, context)

    def _statement(self, family: str) -> str:
        if family == "writes":
            return self._filled(self._chance.choice(STATEMENTS))
        return f"t{self._made()} = {self._filled(self._chance.choice(EXPRESSIONS[family]))}"

    def _made(self) -> int:
        return len(self._program.statements)

    def _add(self, statement: str) -> bool:
        """Add the statement if eager accepts it in every call. Return whether it was added."""
        for state in self._states:
            try:
                exec(statement, state)
                fits = _fits(state.get(statement.partition(" = ")[0]))
            except Exception:  # noqa: BLE001  # eager refuses it
                fits = False
            if not fits:
                self._restart()
                return False
        self._program = replace(self._program, statements=(*self._program.statements, statement))
        return True

    def _add_random(self) -> None:
        for _ in range(20):
            if self._add(f"t{self._made()} = {self._filled(self._chance.choice(RANDOM))}"):
                self._program = replace(self._program, drawn=True)
                return

    def _refused(self) -> str:
        """Return a statement that eager refuses in at least one of the calls."""
        program = self._program
        for _ in range(40):
            family = self._chance.choice(["writes", "views", "joining", "products", "pointwise"])
            statement = self._statement(family)
            if not self._add(statement):
                return statement
            self._program = program
            self._restart()
        return "a.view(-1, 0, 3)"

    def _restart(self) -> None:
        """Run the program anew in every call: a statement that failed may have written something."""
        self._states = []
        for call in self._program.calls:
            state = load(self._program)
            values = eval(f"({', '.join(call)},)", state)
            for value in values:
                if self._program.gradients and isinstance(value, torch.Tensor) and value.is_floating_point():
                    value.requires_grad_()
            state.update(zip(self._program.parameters, values, strict=True))
            torch.manual_seed(0)
            for line in self._program.statements:
                exec(line, state)
            self._states.append(state)

    def _tensors(self) -> dict[str, torch.Tensor]:
        state = self._states[0]
        return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}

    def _result(self) -> str:
        names = list(self._tensors())
        if self._chance.random() < 0.5:  # everything that the program made
            return f"({', '.join([name for name in names if name.startswith('t')] or names)},)"
        late = names[-2:] * 2 + names
        form = self._chance.choice(RETURNS)
        count = sum(field is not None for _, field, _, _ in string.Formatter().parse(form))
        return form.format(*(self._chance.choice(late) for _ in range(count)))

    def _filled(self, template: str) -> str:
        chance, tensors = self._chance, self._tensors()
        floats = [name for name, one in tensors.items() if one.is_floating_point()]
        groups = {
            "x": list(tensors),
            "f": floats,
            "i": [name for name, one in tensors.items() if one.dtype in _INTEGERS],
            "b": [name for name, one in tensors.items() if one.dtype == torch.bool],
            "m": [name for name in floats if tensors[name].dim() == 2],
        }
        chosen = {}
        for hole, names in groups.items():
            chosen[hole] = chance.choice([*names[-3:], *names]) if names else ""
        chosen["x"] = chosen["x"] or "a"
        chosen["f"] = chosen["f"] or f"{chosen['x']}.float()"
        chosen["i"] = chosen["i"] or "torch.arange(n)"
        chosen["b"] = chosen["b"] or f"({chosen['x']} > 0)"
        chosen["m"] = chosen["m"] or f"{chosen['f']}.reshape(2, -1)"
        fitting = [name for name in tensors if tensors[name].shape == tensors[chosen["x"]].shape]
        others = {"y": chance.choice([*fitting, *groups["x"]]), "z": chance.choice([*fitting, *groups["x"]])}
        for hole, same in (("g", "f"), ("h", "f"), ("w", "m")):
            others[hole] = chance.choice(groups[same]) if groups[same] else chosen[same]
        others["d"] = chance.choice(["0", "0", "-1", "-1", "1", "-2"])
        others["k"] = chance.choice(["1", "2", "n", "n", "n - 1", "a.shape[-1]", "3", "n + 1", "a.dim()"])
        others["s"] = chance.choice(_SCALARS)
        others["ft"] = f"torch.{chance.choice(['float32', 'float64', 'float16', 'bfloat16'])}"
        others["t"] = f"torch.{chance.choice(['float32', 'float64', 'int64', 'int32', 'float16', 'bool'])}"
        return template.format(**chosen, **others)


def _another(chance: random.Random, size: int, odd: float) -> int:
    if chance.random() < odd:
        return chance.choice([0, 1])
    return chance.choice([one for one in (2, 3, 4, 5, 6, 7) if one != size])


def _fits(value: Any) -> bool:
    """Whether a program can go on with ``value``: it is None, or a tensor that is not too large."""
    return value is None or (isinstance(value, torch.Tensor) and value.numel() <= _MOST_ELEMENTS)
