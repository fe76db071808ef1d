"""The kernels that the engine made of a program, read from the text of its optimized HLO.

Each instruction that the engine runs is a :class:`Kernel`: a fusion, a product, a copy, or a loop. A kernel's
parts say which operators it computes, and with how many arithmetic operations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([^ ]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([^ ]+) = (.*)$")
_OPCODE = re.compile(r" ([a-z][a-z0-9\-]*)\(")
_SHAPE = re.compile(r"\b([a-z]\w*)\[([\d,]*)\]")
_NAME = re.compile(r"%([^ ,()]+)")
_CALLED = re.compile(r"\b(?:calls|body|condition|to_apply|branch_computations)=\{?((?:%[^ ,}]+(?:, )?)+)")
_ORIGIN = re.compile(r'op_name="([^"]*)"')

_FREE = frozenset(["parameter", "constant", "bitcast", "tuple", "get-tuple-element", "after-all", "iota"])
_CONTROL = frozenset(["while", "conditional", "call", "async-start", "async-done"])
_ARITHMETIC = frozenset(
    """
    abs add and atan2 cbrt ceil clamp compare cosine divide erf exponential exponential-minus-one floor
    log log-plus-one logistic maximum minimum multiply negate not or power remainder
    round-nearest-afz round-nearest-even rsqrt select shift-left shift-right-arithmetic
    shift-right-logical sign sine sqrt subtract tan tanh xor
    """.split()  # noqa: SIM905 - a list would take a line for each
)


@dataclass(frozen=True)
class Part:
    """The share of one operator in a kernel; ``origin`` is the name of the operator's location."""

    origin: str
    flops: int
    weight: int
    """The operator's operations plus elements; the kernel's time is divided in proportion to this."""


@dataclass(frozen=True)
class Kernel:
    """One instruction that the engine runs. ``nests`` says whether it runs other kernels, as a loop does."""

    name: str
    opcode: str
    bytes: int
    parts: tuple[Part, ...]
    nests: bool

    @cached_property
    def flops(self) -> int:
        return sum(part.flops for part in self.parts)


@dataclass(frozen=True)
class _Instruction:
    name: str
    opcode: str
    type: str
    operands: tuple[str, ...]
    rest: str
    root: bool

    @property
    def origin(self) -> str:
        found = _ORIGIN.search(self.rest)
        return found[1] if found else ""

    @property
    def called(self) -> list[str]:
        return [name for group in _CALLED.findall(self.rest) for name in _NAME.findall(group)]


_Computations = Mapping[str, Mapping[str, _Instruction]]


def kernels(text: str) -> dict[str, Kernel]:
    """Return the kernels of a module by name, from the text of its optimized HLO."""
    computations = _read(text)
    fused = {
        name
        for body in computations.values()
        for one in body.values()
        if one.opcode not in _CONTROL
        for name in one.called
    }
    return {
        one.name: _kernel(one, body, computations)
        for name, body in computations.items()
        if name not in fused
        for one in body.values()
        if one.opcode not in _FREE
    }


def _read(text: str) -> _Computations:
    found: dict[str, dict[str, _Instruction]] = {}
    body: dict[str, _Instruction] = {}
    for line in text.splitlines():
        computation = _COMPUTATION.match(line)
        if computation:
            body = found.setdefault(computation[1], {})
        elif instruction := _INSTRUCTION.match(line):
            root, name, rest = instruction.groups()
            opcode = _OPCODE.search(f" {rest}" if rest.startswith("(") else rest)
            if opcode is None:
                continue
            start = rest.index(f"{opcode[1]}(") + len(opcode[1])
            inside = rest[start : rest.find(")", start)]
            type_ = rest[: start - len(opcode[1])]
            operands = tuple(_NAME.findall(inside))
            body[name] = _Instruction(name, opcode[1], type_, operands, rest[start:], bool(root))
    return found


def _kernel(one: _Instruction, body: Mapping[str, _Instruction], all_: _Computations) -> Kernel:
    if one.opcode in _CONTROL:
        return Kernel(one.name, one.opcode, 0, (), nests=True)
    shares: dict[str, tuple[int, int]] = {}
    for inner, around in _computed(one, body, all_):
        flops, elements = _flops(inner, around), _elements(inner.type)
        if inner.opcode in _FREE:
            continue
        origin = inner.origin or one.origin
        known = shares.get(origin, (0, 0))
        shares[origin] = known[0] + flops, known[1] + flops + elements
    parts = tuple(Part(origin, flops, weight) for origin, (flops, weight) in shares.items())
    return Kernel(one.name, one.opcode, _bytes(one.type) + _read_bytes(one, body, all_), parts, nests=False)


def _computed(
    one: _Instruction, body: Mapping[str, _Instruction], all_: _Computations
) -> Iterator[tuple[_Instruction, Mapping[str, _Instruction]]]:
    """Yield the instructions that a kernel computes, each with the computation that contains it.

    For a fusion, these are the instructions inside it.
    """
    if one.opcode != "fusion":
        yield one, body
        return
    for name in one.called:
        inside = all_.get(name, {})
        for inner in inside.values():
            yield from _computed(inner, inside, all_)


def _read_bytes(one: _Instruction, body: Mapping[str, _Instruction], all_: _Computations) -> int:
    """Return the bytes that a kernel reads: its operands, or only the slices that a fusion takes of them."""
    total = 0
    inside = all_.get(one.called[0], {}) if one.opcode == "fusion" and one.called else {}
    for position, operand in enumerate(one.operands):
        whole = _bytes(body[operand].type) if operand in body else 0
        names = [
            p.name for p in inside.values() if p.opcode == "parameter" and p.rest.startswith(f"({position})")
        ]
        users = [user for user in inside.values() if set(names) & set(user.operands)]
        if users and all(user.opcode in ("slice", "dynamic-slice", "gather") for user in users):
            whole = min(whole, sum(_bytes(user.type) for user in users))
        total += whole
    return total


def _dims(type_: str) -> list[list[int]]:
    return [[int(size) for size in dims.split(",") if size] for _, dims in _SHAPE.findall(type_)]


def _elements(type_: str) -> int:
    return sum(map(math.prod, _dims(type_)))


def _bytes(type_: str) -> int:
    return sum(
        math.ceil(math.prod(int(size) for size in dims.split(",") if size) * _bits(name) / 8)
        for name, dims in _SHAPE.findall(type_)
    )


def _bits(name: str) -> int:
    """``f32`` → 32, ``bf16`` → 16, ``f8e4m3fn`` → 8, ``pred`` → 8."""
    digits = re.search(r"\d+", name)
    return int(digits[0]) if digits else 8 if name == "pred" else 0


def _flops(one: _Instruction, around: Mapping[str, _Instruction]) -> int:
    """Return the number of arithmetic operations; a multiplication and an addition count as two."""
    operands = [around[name].type for name in one.operands if name in around]
    if one.opcode == "dot" and operands:
        contracted = _attribute(one.rest, "lhs_contracting_dims")
        sizes = _dims(operands[0])[0]
        return 2 * _elements(one.type) * math.prod(sizes[axis] for axis in contracted)
    if one.opcode == "convolution" and len(operands) == 2:
        return _convolution(one, *(_dims(type_)[0] for type_ in operands))
    if one.opcode in ("reduce", "reduce-window") and operands:
        window = re.search(r"window=\{size=([\dx]+)", one.rest)
        each = math.prod(map(int, window[1].split("x"))) if window else 1
        return _elements(one.type) * each if window else _elements(operands[0])
    return _elements(one.type) if one.opcode in _ARITHMETIC else 0


def _attribute(text: str, name: str) -> list[int]:
    found = re.search(rf"\b{name}=\{{([\d,]*)\}}", text)
    return [int(one) for one in found[1].split(",") if one] if found else []


def _convolution(one: _Instruction, image: list[int], kernel: list[int]) -> int:
    """Return two operations for each product of an image element and a kernel element, ignoring padding."""
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", one.rest)
    if labels is None:
        return 0
    out = _elements(one.type)
    of_kernel = dict(zip(labels[2], kernel, strict=False))
    taps = math.prod(size for label, size in of_kernel.items() if label.isdigit()) * of_kernel["i"]
    dilation = re.search(r"lhs_dilate=([\dx]+)", one.rest)
    zeros = math.prod(map(int, dilation[1].split("x"))) if dilation else 1
    return 2 * out * taps // zeros  # the zeros of a dilated image are not multiplied
