"""How signatures differ, in words; and which calls no longer bind."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from torchstone.gaps.compare import signature_differences
from torchstone.gaps.docstrings import docstring_signature
from torchstone.gaps.signatures import (
    Change,
    Signature,
    changes,
    from_inspect,
    overload_changes,
    unbindable,
    value_text,
    written,
)
from torchstone.gaps.surface import read_surface, resolve


def signature(declared: str) -> Signature:
    """Return the signature of a function ``f`` declared with these parameters."""
    names: dict[str, Any] = {}
    exec(f"def f{declared}: pass", names)
    return from_inspect(inspect.signature(names["f"]))


@pytest.mark.parametrize(
    ("old", "new", "text", "breaking"),
    [
        ("(a)", "(a, b)", "`b` added (positional or keyword)", True),
        ("(a)", "(a, *, b=1)", "`b = 1` added (keyword-only)", False),
        ("(a)", "(a, **kwargs)", "`**kwargs` added (variadic keyword)", False),
        ("(a, b)", "(a)", "`b` removed", True),
        ("(a, b=1)", "(a, c=1)", "`b` renamed to `c`", True),
        ("(a=1)", "(a=2)", "`a` was 1 by default, now 2 by default", True),
        ("(a=1)", "(a)", "`a` was 1 by default, now required", True),
        ("(a)", "(a=1)", "`a` was required, now 1 by default", False),
        ("(a, b)", "(a, *, b)", "`b` was positional or keyword, now keyword-only", True),
        ("(a, /)", "(a)", "`a` was positional-only, now positional or keyword", False),
        ("(a, b)", "(b, a)", "order was a, b, now b, a", True),
        ("(a: int)", "(a: float)", "`a` was annotated with int, now with float", False),
        ("() -> int", "() -> str", "returned int, now str", False),
    ],
)
def test_each_change_is_told(old: str, new: str, text: str, breaking: bool) -> None:
    assert changes(signature(old), signature(new)) == (Change(text, breaking),)


def test_equal_signatures_have_no_changes() -> None:
    for declared in ("()", "(a, /, b, *args, c, d=1, **kwargs)", "(a: int = 1) -> str"):
        assert changes(signature(declared), signature(declared)) == ()


def test_annotations_may_be_left_out() -> None:
    assert changes(signature("(a: int) -> int"), signature("(a)"), annotations=False) == ()


def test_a_signature_reads_as_it_iswritten() -> None:
    for declared in ("()", "(a, /, b, *args, c, d = 1, **kwargs)", "(a, *, b: int = 2) -> str", "(a, /)"):
        assert str(signature(declared)) == declared


def test_overloads_are_matched_whatever_their_order() -> None:
    one, two, three = signature("(a)"), signature("(b)"), signature("(a, b=1)")
    assert overload_changes((one, two), (two, one)) == ()
    assert [change.text for change in overload_changes((one, two), (two, three))] == [
        "`b = 1` added (positional or keyword)"
    ]
    assert [change.text for change in overload_changes((one, two), (two,))] == ["overload `(a)` removed"]
    assert [change.text for change in overload_changes((one,), (one, two))] == ["overload `(b)` added"]


@pytest.mark.parametrize(
    ("theirs", "ours", "refused"),
    [
        ("(a, b=1)", "(a, b=1)", []),
        ("(a, b=1)", "(a, *, b=1)", ["`b` by position"]),
        ("(a, b=1)", "(a, b=1, /)", ["`a` by keyword", "`b` by keyword"]),
        ("(a, *, b=1)", "(a)", ["`b` by keyword"]),
        ("(a, b, /, c)", "(a, b, /, c)", []),
        ("(a, b, /, c)", "(a, b, c, /)", ["`a` by position", "`b` by position", "`c` by keyword"]),
        ("(a, *args, **kwargs)", "(a)", []),
    ],
)
def test_each_parameter_is_bound_both_ways(theirs: str, ours: str, refused: list[str]) -> None:
    names: dict[str, Any] = {}
    exec(f"def f{ours}: pass", names)
    found = unbindable(signature(theirs), inspect.signature(names["f"]))
    assert [text.partition(":")[0] for text in dict.fromkeys(found)] == refused


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5, "1.5"),
        ("a", "'a'"),
        (Colour.RED, "Colour.RED"),
        (torch.float32, "torch.float32"),
        (torch.nn.Linear, "torch.nn.modules.linear.Linear"),
        (len, "builtins.len"),
        (torch.nn, "torch.nn"),
        (frozenset({"b", "a"}), "frozenset({'a', 'b'})"),
    ],
)
def test_defaults_have_one_text_everywhere(value: object, text: str) -> None:
    assert value_text(value) == text


def test_a_default_without_a_name_has_no_address() -> None:
    assert value_text(object()) == "<object object>"


def wrapped(original: Callable[..., Any], *, takes: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Make a replacement that shows ``original``'s signature through ``__wrapped__``, whatever it accepts."""

    def replacement(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    found = takes or replacement
    found.__wrapped__ = original  # type: ignore[attr-defined]
    return found


def test_what_a_replacement_wraps_does_not_count() -> None:
    original = torch.nn.functional.relu
    narrow = wrapped(original, takes=lambda input: original(input))
    assert inspect.signature(narrow) == inspect.signature(original)
    assert signature_differences((), original, narrow) == ("`inplace` removed",)


def test_a_replacement_that_takes_every_call_breaks_none() -> None:
    original = torch.nn.functional.relu
    assert signature_differences((), original, wrapped(original)) == ()

    def more(input: Any, inplace: bool = False, *, out: Any = None, **others: Any) -> Any:
        return original(input, inplace)

    assert signature_differences((), original, more) == ()

    def shifted(input: Any, out: Any = None, inplace: bool = False) -> Any:
        return original(input, inplace)

    assert signature_differences((), original, shifted) == (
        "`out: Any = None` added (positional or keyword)",
    )


DOCUMENTED = ("torch.linalg", "torch.fft", "torch.special", "torch.nn.functional")
LEFT_OUT = {
    "torch.fft.fftfreq": "`pin_memory` removed",
    "torch.fft.rfftfreq": "`pin_memory` removed",
    "torch.linalg.lstsq": "`out` removed",
    "torch.nn.functional.hardshrink": "`out` removed",
    "torch.special.round": "`decimals` removed",
}
"""Parameters that a docstring leaves out although the function takes them."""


def test_the_documented_signature_of_what_is_written_in_c_leaves_no_gap() -> None:
    """Schemas and stubs name ``input`` ``self``, list ``out=`` separately, and use None for most defaults."""
    compared, different = 0, {}
    for api in read_surface(DOCUMENTED).apis.values():
        original = resolve(api.name)
        shown = docstring_signature(original) if api.origin in ("stub", "schema") else None
        if shown is None:
            continue
        parameters = ", ".join(written(replace(one, annotation=None) for one in shown.parameters))
        replacement = eval(f"lambda {parameters}: None", vars(torch).copy())
        compared += 1
        if found := signature_differences(api.signatures, original, replacement):
            different[api.name] = found
    assert compared > 100
    assert different == {name: (text,) for name, text in LEFT_OUT.items()}


def test_a_keyword_only_parameter_may_stay_so_where_the_stub_forgets_the_star() -> None:
    documented = read_surface(["torch"]).apis["torch.tensor"].signatures

    def made(
        data: Any,
        *,
        dtype: Any = None,
        device: Any = None,
        requires_grad: Any = False,
        pin_memory: Any = False,
    ) -> Any:
        return torch.tensor(data, dtype=dtype)

    with pytest.raises(TypeError):
        torch.tensor(1, torch.float32)  # type: ignore[misc]
    assert signature_differences(documented, torch.tensor, made) == ()


def test_a_schema_is_read_as_python_calls_it() -> None:
    (cross,) = read_surface(["torch.linalg"]).apis["torch.linalg.cross"].signatures
    assert [str(one) for one in cross.parameters] == [
        "input: Tensor",
        "other: Tensor",
        "dim: int = -1",
        "out: Optional[Tensor] = None",
    ]


def test_an_original_without_a_signature_may_be_passed_through(surface: Any) -> None:
    original = torch.linalg.qr
    documented = surface.apis["torch.linalg.qr"].signatures
    with pytest.raises(ValueError, match="signature"):
        inspect.signature(original)
    assert signature_differences(documented, original, wrapped(original)) == ()
    assert signature_differences(documented, original, lambda A: original(A)) != ()
