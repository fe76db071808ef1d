"""The signature of a program, and ``signature.json``, which is read with every field checked.

A defect of a description raises :class:`Damage`, which the reader of a file
(:mod:`torchstone.artifact`) turns into its own error. Needs neither torch nor JAX.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, get_args

from . import dtypes
from .dtypes import DType
from .errors import ArtifactVersionError, ShardingError, UnsupportedDtype
from .shapes import Range, evaluate, is_condition, names_in
from .sharding import LARGEST, Mesh, Spec
from .trees import Tree

FORMAT_VERSION = 6
"""The newest format. :func:`describe` writes the number of the oldest format that suffices."""

SIGNATURE = "signature.json"

InputKind = Literal["parameter", "buffer", "constant", "input", "seed"]
CheckKind = Literal["index_check", "value_check", "size_check"]
OutputKind = Literal["output", "buffer_mutation", "input_mutation", "size", CheckKind]


@dataclass(frozen=True)
class InputSpec:
    """One argument of the module's ``main``, in order.

    ``target`` of a parameter, buffer or constant is its name among the weights.
    A ``seed`` is uint64 ``[2]`` that the call layer draws. ``sharding`` says how the argument
    is split over the program's mesh, if it has one.
    """

    kind: InputKind
    name: str
    shape: tuple[int | str, ...]
    dtype: DType
    target: str | None = None
    sharding: Spec | None = None


@dataclass(frozen=True)
class OutputSpec:
    """One result of ``main``, in order.

    For a mutation, ``target`` is the buffer's name among the weights, or the name of the input
    that receives the result. For a check (0-d bool, true if it passed) it is the text that the
    error shows. For a size (0-d int64) it is the size's symbol.
    """

    kind: OutputKind
    name: str
    shape: tuple[int | str, ...]
    dtype: DType
    target: str | None = None


@dataclass(frozen=True)
class Signature:
    """How to call a program.

    See :mod:`torchstone.trees` for the trees and :mod:`torchstone.shapes` for symbolic shapes. ``mesh`` is
    the mesh of a program for several devices. ``ranks`` is the number of ranks that run a program with
    collectives together, each on arguments of its own.

    ``relations`` are conditions that the symbols must satisfy: those assumed when the model was traced, and
    those that exclude small sizes which the program refuses. ``reasons`` explains some of the relations.

    ``bounds`` has an upper bound for each symbol whose size depends on values. Results are as long as the
    bound, and a result of kind ``size`` says how many of their elements are valid. A number that depends on
    values has None as its bound.
    """

    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    input_tree: Tree
    output_tree: Tree
    symbols: Mapping[str, Range] = field(default_factory=dict)
    relations: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    bounds: Mapping[str, int | str | None] = field(default_factory=dict)
    mesh: Mesh | None = None
    ranks: int | None = None
    stablehlo_version: str = ""
    producer: Mapping[str, str] = field(default_factory=dict)

    def padded(self, dim: int | str, symbols: Mapping[str, int]) -> int:
        """Return the length of a dimension in the module, where ``symbols`` are the sizes of the inputs."""
        inside = names_in(str(dim)) if self.bounds else set()
        ends = [
            [(name, end) for end in (evaluate(bound, symbols), 0)]
            for name, bound in self.bounds.items()
            if name in inside and bound is not None
        ]
        return max(evaluate(dim, {**symbols, **dict(one)}) for one in itertools.product(*ends))


@dataclass(frozen=True)
class StoredForm:
    """The dtype and shape of a stored weight. ``same_as`` names another weight that has the same values."""

    dtype: DType
    shape: tuple[int, ...]
    same_as: str | None = None

    @property
    def size(self) -> int:
        """The size of the values, in bytes."""
        return self.dtype.itemsize * math.prod(self.shape)


class Damage(Exception):
    """A defect of a file; the reader of the file turns it into the error that the user gets."""


def require(condition: bool, what: str) -> None:
    if not condition:
        raise Damage(what)


def describe(
    signature: Signature, weights: Mapping[str, StoredForm], checksums: Mapping[str, str]
) -> dict[str, Any]:
    """Return ``signature.json`` as data; ``checksums`` has the other members' SHA-256, in hexadecimal."""
    return {
        "format_version": _oldest_format(signature, weights),
        "sha256": dict(checksums),
        **describe_program(signature),
        "weights": describe_weights(weights),
    }


def describe_program(signature: Signature) -> dict[str, Any]:
    """Return the description that :func:`parse_signature` reads."""
    return {
        "stablehlo_version": signature.stablehlo_version,
        "producer": dict(signature.producer),
        "inputs": [_describe_spec(spec) for spec in signature.inputs],
        "outputs": [_describe_spec(spec) for spec in signature.outputs],
        "input_tree": signature.input_tree,
        "output_tree": signature.output_tree,
        "symbols": {name: list(bounds) for name, bounds in signature.symbols.items()},
        **({"relations": list(signature.relations)} if signature.relations else {}),
        **({"reasons": dict(signature.reasons)} if signature.reasons else {}),
        **({"bounds": dict(signature.bounds)} if signature.bounds else {}),
        **({} if signature.mesh is None else {"mesh": [list(axis) for axis in signature.mesh.axes.items()]}),
        **({} if signature.ranks is None else {"ranks": signature.ranks}),
    }


def describe_weights(weights: Mapping[str, StoredForm]) -> dict[str, Any]:
    """Return the description that :func:`~torchstone.stored_weights.read_weights` reads."""
    return {name: _describe_form(form) for name, form in weights.items()}


_SIZED = ("size", "size_check")
MOST_UNKNOWN = 6
"""The most sizes that depend on values in one dimension; its length is computed for both ends of each."""


def _oldest_format(signature: Signature, weights: Mapping[str, StoredForm]) -> int:
    """Return the oldest format that has all that the program needs.

    Format 2 added meshes, 3 weights that are the same as another, 4 relations of sizes, 5 ranks,
    6 sizes that depend on values.
    """
    if any(spec.kind in _SIZED for spec in signature.outputs):
        return 6
    if signature.ranks is not None:
        return 5
    if signature.relations:
        return 4
    if any(form.same_as is not None for form in weights.values()):
        return 3
    return 1 if signature.mesh is None else 2


def _describe_form(form: StoredForm) -> dict[str, Any]:
    return {
        "dtype": form.dtype.name,
        "shape": list(form.shape),
        **({} if form.same_as is None else {"same_as": form.same_as}),
    }


def _describe_spec(spec: InputSpec | OutputSpec) -> dict[str, Any]:
    split = None if isinstance(spec, OutputSpec) else spec.sharding
    return {
        "kind": spec.kind,
        "name": spec.name,
        "shape": list(spec.shape),
        "dtype": spec.dtype.name,
        "target": spec.target,
        **({} if split is None else {"sharding": [list(axes) for axes in split]}),
    }


def versioned_json(
    content: bytes, member: str, key: str, newest: int, what: tuple[str, str]
) -> tuple[dict[str, Any], int]:
    """Return the JSON object in ``member``, and its format version, which is its entry ``key``.

    ``what`` has two words for the error: the thing that has the version, and the thing to export again.
    Raises :class:`Damage`, and :class:`ArtifactVersionError` for a version above ``newest``.
    """
    try:
        description = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Damage(f"{member} is not JSON") from error
    version = get(description, key, int)
    if version > newest:
        raise ArtifactVersionError(
            f"the {what[0]} has format version {version}; this Torchstone reads up to {newest}",
            hint=f"update torchstone, or export the {what[1]} with this version",
        )
    require(version >= 1, f"format version {version} does not exist")
    return dict(description), version


def parse_json(content: bytes) -> dict[str, Any]:
    description, version = versioned_json(
        content, SIGNATURE, "format_version", FORMAT_VERSION, ("artifact", "program")
    )
    require(version > 1 or "mesh" not in description, "format version 1 has no mesh")
    entries = get(description, "weights", dict).values()
    shared = any(isinstance(entry, dict) and "same_as" in entry for entry in entries)
    require(version > 2 or not shared, f"format version {version} has no weights that are the same")
    require(version > 3 or "relations" not in description, f"format version {version} has no relations")
    require(version > 4 or "ranks" not in description, f"format version {version} has no ranks")
    kinds = [one.get("kind") for one in get(description, "outputs", list) if isinstance(one, dict)]
    sized = "bounds" in description or any(kind in _SIZED for kind in kinds)
    require(version > 5 or not sized, f"format version {version} has no sizes that depend on values")
    return description


def parse_signature(description: Mapping[str, Any]) -> Signature:
    symbols = get(description, "symbols", dict)
    mesh = _parse_mesh(description) if "mesh" in description else None
    ranks = get(description, "ranks", int) if "ranks" in description else None
    require(ranks is None or (mesh is None and 1 < ranks <= LARGEST), f"{ranks} ranks")
    inputs = tuple(
        _split(_parse_spec(InputSpec, entry, symbols), entry, mesh)
        for entry in get(description, "inputs", list)
    )
    outputs = tuple(_parse_spec(OutputSpec, entry, symbols) for entry in get(description, "outputs", list))
    input_tree, output_tree = (get(description, f"{role}_tree", dict) for role in ("input", "output"))
    for name, bounds in symbols.items():
        require(
            isinstance(bounds, list)
            and len(bounds) == 2
            and type(bounds[0]) is int
            and (bounds[1] is None or type(bounds[1]) is int),
            f"the bounds of symbol {name!r}",
        )
    relations = get(description, "relations", list) if "relations" in description else []
    for relation in relations:
        require(is_relation(relation), f"{str(relation)[:80]!r} is not a relation")
        unknown = sorted(names_in(relation) - set(symbols))
        require(not unknown, f"unknown symbol {', '.join(unknown)}")
    reasons = get(description, "reasons", dict) if "reasons" in description else {}
    require(all(isinstance(why, str) for why in reasons.values()), "the reasons of relations")
    require(reasons.keys() <= set(relations), "reasons of what is not a relation")
    bounds = get(description, "bounds", dict) if "bounds" in description else {}
    require(bounds.keys() <= symbols.keys(), "bounds of unknown symbols")
    others = {name: one for name, one in symbols.items() if name not in bounds}
    for one in bounds.values():
        shape_of([0 if one is None else one], others)
    dims = [dim for spec in inputs for dim in spec.shape] + [dim for spec in outputs for dim in spec.shape]
    for dim in dims:
        require(len(names_in(str(dim)) & bounds.keys()) <= MOST_UNKNOWN, f"the dimension {str(dim)[:80]!r}")
    told = [one for one in outputs if one.kind == "size"]
    require(sorted(str(one.target) for one in told) == sorted(bounds), "the results that say sizes")
    require(all((one.shape, one.dtype) == ((), dtypes.INT64) for one in told), "a result that says a size")
    producer = get(description, "producer", dict)
    require(all(isinstance(value, str) for value in producer.values()), "producer")
    signature = Signature(
        inputs=inputs,
        outputs=outputs,
        input_tree=input_tree,
        output_tree=output_tree,
        symbols={name: (low, high) for name, (low, high) in symbols.items()},
        relations=tuple(relations),
        reasons=reasons,
        bounds=bounds,
        mesh=mesh,
        ranks=ranks,
        stablehlo_version=get(description, "stablehlo_version", str),
        producer=producer,
    )
    check_trees(signature)
    return signature


Entry = TypeVar("Entry", InputSpec, OutputSpec)
_KINDS: Mapping[type, tuple[str, ...]] = {InputSpec: get_args(InputKind), OutputSpec: get_args(OutputKind)}


def _parse_spec(cls: type[Entry], entry: Any, symbols: Mapping[str, Any]) -> Entry:
    kind = get(entry, "kind", str)
    require(kind in _KINDS[cls], f"{kind!r} is not a kind of an {cls.__name__}")
    shape = shape_of(get(entry, "shape", list), symbols)
    target = entry.get("target")
    require(target is None or isinstance(target, str), "target")
    return cls(kind, get(entry, "name", str), shape, dtype_of(get(entry, "dtype", str)), target)  # type: ignore[arg-type]


def _parse_mesh(description: Mapping[str, Any]) -> Mesh:
    axes = get(description, "mesh", list)
    pairs = all(isinstance(axis, list) and len(axis) == 2 and isinstance(axis[0], str) for axis in axes)
    require(pairs and len({axis[0] for axis in axes}) == len(axes), "mesh")
    try:
        return Mesh(dict(axes))
    except ShardingError as error:
        raise Damage(error.message) from error


def _split(spec: InputSpec, entry: Mapping[str, Any], mesh: Mesh | None) -> InputSpec:
    """Return ``spec`` with the sharding in ``entry``, which every input has if there is a mesh."""
    if mesh is None:
        return spec
    given = get(entry, "sharding", list)
    require(len(given) == len(spec.shape), f"the sharding of {spec.name!r}")
    try:
        sharding = mesh.spec(given, len(spec.shape), repr(spec.name))
        mesh.check_shape(sharding, spec.shape, repr(spec.name))
    except ShardingError as error:
        raise Damage(error.message) from error
    return replace(spec, sharding=sharding)


def check_targets(signature: Signature, weights: Mapping[str, Any]) -> None:
    """Raise :class:`Damage` unless every target exists and every weight has the form of its input."""
    for spec in signature.inputs:
        if spec.kind in ("parameter", "buffer", "constant"):
            require(spec.target in weights, f"there is no weight {spec.target!r}")
            weight = weights[str(spec.target)]
            same = weight.shape == spec.shape and dtypes.from_numpy(weight.dtype) == spec.dtype
            require(same, f"weight {spec.target!r} is not the {spec.dtype}{list(spec.shape)} of its input")
    own = {spec.name for spec in signature.inputs if spec.kind == "input"}
    for result in signature.outputs:
        if result.kind in ("buffer_mutation", "input_mutation"):
            known = own if result.kind == "input_mutation" else weights.keys()
            require(result.target in known, f"mutation of the unknown {result.target!r}")


def check_trees(signature: Signature) -> None:
    symbols = signature.symbols
    inputs = sum(spec.kind == "input" for spec in signature.inputs)
    outputs = sum(spec.kind == "output" for spec in signature.outputs)
    _check_tree(signature.input_tree, inputs, "input_tree", symbols)
    _check_tree(signature.output_tree, outputs, "output_tree", symbols)
    _check_call(signature.input_tree)


def _check_call(tree: Tree) -> None:
    """Raise :class:`Damage` unless ``tree`` describes positional and keyword arguments."""
    parts = tree.get("tuple")
    kinds = [set(part) for part in parts] if isinstance(parts, list) else []
    require(kinds in ([{"tuple"}, {"dict"}], [{"list"}, {"dict"}]), "input_tree is not that of a call")
    names = tree["tuple"][1]["dict"]["keys"]
    require(all(isinstance(name, str) for name in names), "input_tree is not that of a call")


def _check_tree(tree: Tree, leaves: int, role: str, symbols: Mapping[str, Any]) -> None:
    """Raise :class:`Damage` unless ``tree`` is valid (:mod:`torchstone.trees`) and has each leaf once."""
    found: list[Any] = []
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        require(isinstance(node, dict) and len(node) == 1, role)
        ((kind, content),) = node.items()
        if kind == "leaf":
            found.append(content)
        elif kind in ("tuple", "list"):
            pending += get(node, kind, list)
        elif kind in ("dict", "record"):
            keys, values = get(content, "keys", list), get(content, "values", list)
            require(len(keys) == len(values) == len(set(map(repr, keys))), role)
            require(all(isinstance(key, (str, int, float, type(None))) for key in keys), role)
            if kind == "record":
                require(isinstance(content.get("type"), str), role)
                require(isinstance(content.get("module", ""), str), role)
                require(all(isinstance(key, str) for key in keys), role)
            pending += values
        elif kind == "dim":
            shape_of([content], symbols)
        else:
            require(kind in ("none", "const"), f"{role} has a {kind!r}")
    require(
        all(type(leaf) is int for leaf in found) and sorted(found) == list(range(leaves)), f"leaves of {role}"
    )


# An expression that shapes.evaluate can evaluate cheaply: at most four powers, with exponents of one digit.
_EXPRESSION = re.compile(r"(?!(?:.*\*\*){5})(?!.*\*\*\s*(?!\d\b(?!\s*\*\*)))[\w\s+\-*/%(),]{1,500}")


def shape_of(entries: Sequence[Any], symbols: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
    """Return ``entries`` as a shape: sizes and, if ``symbols`` is given, expressions of these symbols."""
    require(len(entries) <= _MOST_DIMENSIONS, f"{len(entries)} dimensions are too many")
    for dim in entries:
        is_size = type(dim) is int and 0 <= dim < 2**63
        is_expression = symbols is not None and isinstance(dim, str) and _EXPRESSION.fullmatch(dim)
        require(bool(is_size or is_expression), f"{dim!r} is not a dimension")
        if is_expression:
            unknown = sorted(names_in(dim) - set(symbols or ()))
            require(not unknown, f"unknown symbol {', '.join(unknown)}")
    return tuple(entries)


def is_relation(text: Any) -> bool:
    """Whether ``text`` is a condition of :func:`torchstone.shapes.holds` that is cheap to evaluate."""
    if not isinstance(text, str) or len(text) > _LONGEST_RELATION:
        return False
    parts = re.split(r"[<>=!]+|\b(?:and|or|not)\b", text)
    cheap = len(parts) > 1 and all(_EXPRESSION.fullmatch(part) for part in parts if part)
    return cheap and is_condition(text)


_LONGEST_RELATION = 2000
_MOST_DIMENSIONS = 64
"""The limit of NumPy's arrays."""


def dtype_of(name: str) -> DType:
    try:
        return dtypes.by_name(name)
    except UnsupportedDtype as error:
        raise Damage(f"{name!r} is not a dtype") from error


Kind = TypeVar("Kind")


def get(mapping: Any, key: str, kind: type[Kind]) -> Kind:
    """Return ``mapping[key]``; raise :class:`Damage` if it is missing or does not have the type ``kind``."""
    value = mapping.get(key) if isinstance(mapping, dict) else None
    require(type(value) is kind, f"{key!r} is missing or has the wrong type")
    return value  # type: ignore[return-value]
