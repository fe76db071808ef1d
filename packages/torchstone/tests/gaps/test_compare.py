"""Tests of the comparison itself: it finds every fault of a provider, and nothing else."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from torchstone.errors import GapsError
from torchstone.gaps.answers import Answer, GapKind, Status, Trial
from torchstone.gaps.compare import Comparison, compare, judge
from torchstone.gaps.contracts import contract_trials, expected_types
from torchstone.gaps.providers import make_provider
from torchstone.gaps.settings import find_api
from torchstone.gaps.surface import Api, Surface

relu, softmax, dropout = torch.nn.functional.relu, torch.nn.functional.softmax, torch.nn.functional.dropout
Held = Callable[..., Comparison]


def test_the_control_has_no_gaps(surface: Surface) -> None:
    """PyTorch's own module replaces itself, so any gap would be a fault of the comparison."""
    provider = make_provider("module:torch.nn.functional=torch.nn.functional,torch.linalg=torch.linalg")
    found = compare(provider, surface.apis.values())
    assert [(gap.api.name, gap.description) for gap in found.gaps()] == []
    assert len(found.findings) > 150
    assert sum(one.trial is not None for one in found.findings.values()) > 120


def wrong_default(input: Any, inplace: bool = True) -> Any:
    return relu(input)


def missing_parameter(input: Any) -> Any:
    return relu(input)


def other_order(inplace: Any, input: Any = False) -> Any:
    return relu(inplace)


def keyword_only(input: Any, *, inplace: bool = False) -> Any:
    return relu(input)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (wrong_default, "`inplace` was False by default, now True by default"),
        (missing_parameter, "`inplace` removed"),
        (other_order, "order was input, inplace, now inplace, input"),
        (keyword_only, "`inplace` was positional or keyword, now keyword-only"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_wrong_signature_is_found(held: Held, fault: Callable[..., Any], says: str) -> None:
    gaps = held(relu=fault).gaps()
    assert [gap.kind for gap in gaps] == [GapKind.SIGNATURE]
    assert says in gaps[0].description


def nothing(input: Any, inplace: bool = False) -> Any:
    return None


def double(input: Any, inplace: bool = False) -> Any:
    return relu(input).double()


def elsewhere(input: Any, inplace: bool = False) -> Any:
    return relu(input).to("meta")


def sized(input: Any, inplace: bool = False) -> Any:
    return relu(input)[None]


def writes(input: Any, inplace: bool = False) -> Any:
    return input.neg_().relu_().neg_()


def draws(input: Any, inplace: bool = False) -> Any:
    torch.rand(1)
    return relu(input)


def without_gradients(input: Any, inplace: bool = False) -> Any:
    torch.set_grad_enabled(False)
    return relu(input)


def warns(input: Any, inplace: bool = False) -> Any:
    warnings.warn("slow", UserWarning, stacklevel=2)
    return relu(input)


def refuses(input: Any, inplace: bool = False) -> Any:
    raise NotImplementedError("not on this device")


@pytest.mark.parametrize(
    ("fault", "says", "loud"),
    [
        (nothing, "result: type Tensor there, NoneType here", False),
        (double, "result: dtype torch.float32 there, torch.float64 here", False),
        (elsewhere, "result: device cpu there, meta here", False),
        (sized, "result: shape (3, 3) there, (1, 3, 3) here", False),
        (writes, "argument[0]: other values", False),
        (draws, "changes the nothing there, random state here", False),
        (without_gradients, "changes the nothing there, grad mode here", False),
        (warns, "warns with nothing there, UserWarning here", False),
        (refuses, "works there, raises NotImplementedError: not on this device here", True),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_wrong_behaviour_is_found(held: Held, fault: Callable[..., Any], says: str, loud: bool) -> None:
    with torch.enable_grad():
        found = held(relu=fault)
    (gap,) = found.gaps()
    assert (gap.kind, gap.loud) == (GapKind.BEHAVIOUR, loud)
    assert says in gap.description


def test_a_silent_stub_is_found(held: Held) -> None:
    """The stub returns its argument unchanged."""

    def stubbed(input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
        return input

    (gap,) = held(softmax=stubbed).gaps()
    assert (gap.kind, gap.loud) == (GapKind.BEHAVIOUR, False)
    assert "result: other values" in gap.description


def test_a_name_that_is_not_there_is_found(held: Held) -> None:
    found = held(relu=None, gelu=torch.nn.functional.gelu)
    assert [(gap.api.leaf, gap.kind) for gap in found.gaps()] == [("relu", GapKind.UNPATCHED)]
    assert found.count(Status.ABSENT) == 1
    assert found.count(Status.MATCH, "torch.nn.functional") == 1


def test_random_functions_start_from_one_state(held: Held) -> None:
    def same(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return dropout(input, p, training, inplace)

    def another_stream(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return dropout(input, p, training, inplace).flip(0)

    assert held(dropout=same).gaps() == []
    assert [gap.description for gap in held(dropout=another_stream).gaps()] == ["result: other values"]


def test_trials_leave_the_process_as_it_was(held: Held) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    held(dropout=dropout, relu=relu)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.is_warn_always_enabled()


API = Api("torch.cuda.thing", "function")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(Status.MATCH), None),
        (Answer(Status.WRAPS), None),
        (Answer(Status.MODIFIED, note="why"), GapKind.BEHAVIOUR),
        (Answer(Status.PARTIAL, missing=("float16",)), GapKind.TARGET),
        (Answer(Status.STUB, note="why"), GapKind.TARGET),
        (Answer(Status.ABSENT), GapKind.UNPATCHED),
        (Answer(Status.DELIBERATE, note="why"), GapKind.TARGET),
    ],
    ids=lambda one: str(one.status) if isinstance(one, Answer) else "",
)
def test_each_status_leaves_its_gap(answer: Answer, kind: GapKind | None) -> None:
    finding = judge(API, answer, None)
    assert finding.status is answer.status
    assert [(gap.kind, gap.explanation) for gap in finding.gaps] == ([(kind, answer.note)] if kind else [])


def test_what_is_missing_is_listed() -> None:
    (gap,) = judge(API, Answer(Status.PARTIAL, missing=("float16", "dim=None")), None).gaps
    assert gap.description == "missing: float16, dim=None"


def test_a_match_that_differs_is_partial() -> None:
    assert judge(API, Answer(Status.MATCH), Trial(1, ("other values",))).status is Status.PARTIAL
    assert judge(API, Answer(Status.MATCH), Trial(1)).status is Status.MATCH


def test_conditions_on_the_device_are_worth_a_look() -> None:
    (gap,) = judge(API, Answer(Status.MATCH), None, conditions=2).gaps
    assert gap.kind is GapKind.REFINEMENT
    assert judge(API, Answer(Status.WRAPS), None, conditions=2).gaps == ()


@pytest.mark.parametrize(
    ("annotation", "types"),
    [
        ("int", (int,)),
        ("'bool'", (bool,)),
        ("dict[str, Any]", (dict,)),
        ("tuple[int, int]", (tuple,)),
        ("torch.Tensor | None", (torch.Tensor, type(None))),
        ("_CudaDeviceProperties", None),
        ("", None),
    ],
)
def test_documented_types_are_read(annotation: str, types: tuple[type, ...] | None) -> None:
    assert expected_types(annotation) == types


def test_a_broken_contract_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    api = find_api("torch.cuda.memory_allocated")

    def tried(function: Callable[..., Any]) -> Trial:
        monkeypatch.setattr(torch.cuda, "memory_allocated", function)
        return contract_trials([api], nullcontext)[api.name]

    assert tried(lambda device=None: 0) == Trial(1)
    assert tried(lambda device=None: "0").differences == ("gives str, documented is int",)
    assert tried(lambda device=None: None).differences == ("gives NoneType, documented is int",)
    assert tried(lambda device=None: [1]).differences == ("gives list, documented is int",)
    loud = tried(lambda: 0 / 0)
    assert loud.differences == ("raises ZeroDivisionError: division by zero",)
    assert not loud.silent


class Untried:
    """A provider that has no answer for most APIs."""

    name, scope, compared, watched = "untried", ("torch",), "nothing is run", None

    def answers(self, apis: Iterable[Api]) -> Mapping[str, Answer]:
        return {api.name: Answer(Status.WRAPS) for api in apis if api.leaf == "relu"}

    def trials(self, apis: Iterable[Api]) -> Mapping[str, Trial]:
        raise AssertionError("trials were not asked for")


def test_what_a_provider_does_not_claim_does_not_count(surface: Surface) -> None:
    found = compare(Untried(), surface.apis.values(), run=False)
    assert list(found.findings) == ["torch.nn.functional.relu"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rocket", "there is no provider rocket"),
        ("device:nope", "there is no device 'nope' here"),
        ("device:", "there is no device '' here"),
        ("module:", "the provider module needs modules"),
        ("module:shop", "'shop' relates no module to PyTorch's"),
        ("module:no_such_shop=torch", "no_such_shop cannot be imported"),
    ],
)
def test_a_provider_that_is_not_there_is_named(text: str, says: str) -> None:
    with pytest.raises(GapsError) as caught:
        make_provider(text)
    assert caught.value.message.startswith(says)


def test_a_device_is_held_against_the_cpu(surface: Surface) -> None:
    """``meta`` computes nothing, so a function that needs values fails there, with an error."""
    wanted = [surface.apis[f"torch.nn.functional.{name}"] for name in ("relu", "softmax", "one_hot")]
    found = compare(make_provider("device:meta"), wanted)
    assert [(gap.api.leaf, gap.kind, gap.loud) for gap in found.gaps()] == [
        ("one_hot", GapKind.BEHAVIOUR, True)
    ]


def test_the_compile_backend_s_registry_is_a_provider() -> None:
    apis = [find_api(name) for name in ("torch.add", "torch.nonzero", "torch.save")]
    answers = make_provider("compile").answers(apis)
    assert answers["torch.add"].status is Status.MATCH
    assert "aten.add.Tensor" in answers["torch.add"].equivalent
    assert answers["torch.nonzero"].status is Status.ABSENT
    assert answers.keys() == {"torch.add", "torch.nonzero"}
