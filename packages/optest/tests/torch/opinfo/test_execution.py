"""Groups pass on the control, and fail on drivers with one defect each."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")


from optest.backends import Answer, CallDriver  # noqa: E402
from optest.core.case import BackendTarget  # noqa: E402
from optest.core.result import CaseResult, Status  # noqa: E402
from optest.torch.device import TorchDevice  # noqa: E402
from optest.torch.opinfo.additions import additions  # noqa: E402
from optest.torch.opinfo.calls import Call, halved, together  # noqa: E402
from optest.torch.opinfo.databases import entries_of  # noqa: E402
from optest.torch.opinfo.execution import Request, run_group  # noqa: E402
from optest.torch.opinfo.groups import PHASES, Group, Selection  # noqa: E402
from optest.torch.opinfo.per_element import bounds_of, is_elementwise  # noqa: E402
from optest.torch.opinfo.phases import cases_of, planned  # noqa: E402
from optest.torch.opinfo.planning import plan  # noqa: E402

CONTROL = TorchDevice("cpu")
TARGET = BackendTarget("torch", "torch:cpu")


class Defective(TorchDevice):
    """The control, with ``change`` applied to each of its answers."""

    def __init__(self, change: Callable[[Answer], Answer]) -> None:
        super().__init__("cpu")
        self.change = change

    def answer(self, calls: Sequence[Call], repeats: int = 1) -> list[Answer]:
        return [self.change(one) for one in super().answer(calls, repeats)]


class Seeded(TorchDevice):
    """Seeds PyTorch before every call, as a program with a constant seed does."""

    def answer(self, calls: Sequence[Call], repeats: int = 1) -> list[Answer]:
        answers = []
        for call in calls:
            runs = []
            for _ in range(repeats):
                torch.manual_seed(42)
                runs += super().answer([call])
            found: list[Any] = [one for run in runs for one in run.outputs or ()]
            answers.append(Answer(found))
        return answers


class SeededOnce(TorchDevice):
    """Restarts its random stream with every program, whatever PyTorch's seed is."""

    def answer(self, calls: Sequence[Call], repeats: int = 1) -> list[Answer]:
        torch.manual_seed(42)
        return super().answer(calls, repeats)


def run(driver: CallDriver, entry: str, phase: str = "forward", dtype: str = "float32", most: int = 4) -> Any:
    [group] = plan(Selection("opinfo", entries=(entry,), dtypes=(dtype,), phases=(phase,)))
    return run_group(driver, Request(group, TARGET, most=most)).results


def statuses(results: list[CaseResult]) -> set[Status]:
    return {one.status for one in results}


FEW = (
    "add",
    "cumsum",
    "linalg.eigh",
    "masked_select",
    "nn.functional.dropout",
    "nonzero",
    "select",
    "sort",
    "sum",
)


@pytest.mark.kept("out", "inplace", "views", "memory")
@pytest.mark.parametrize("phase", PHASES)
def test_the_control_passes(phase: str) -> None:
    for group in plan(Selection("opinfo", entries=FEW, dtypes=("float32",), phases=(phase,))):
        results = run_group(CONTROL, Request(group, TARGET, most=2)).results
        assert statuses(results) <= {Status.PASSED, Status.SKIPPED}, (group, results)


@pytest.mark.parametrize(
    ("suite", "entry"), [("module", "nn_Linear"), ("optim", "SGD"), ("python_ref", "_refs.add")]
)
def test_the_control_passes_other_suites(suite: str, entry: str) -> None:
    results = run_group(CONTROL, Request(Group(suite, entry, "float32", "forward"), TARGET, most=3)).results
    assert statuses(results) == {Status.PASSED}


@pytest.mark.kept("bool", "bfloat16", "complex32")
@pytest.mark.parametrize("dtype", ["bfloat16", "complex32", "complex64", "int64", "bool"])
def test_the_control_passes_other_dtypes(dtype: str) -> None:
    assert statuses(run(CONTROL, "add", dtype=dtype)) == {Status.PASSED}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("phase", ["forward", "backward", "second_order", "forward_mode"])
@pytest.mark.parametrize("entry", ["__getitem__", "tensor_split", "masked_select"])
def test_the_control_passes_where_a_tensor_decides_sizes(entry: str, phase: str) -> None:
    results = run(CONTROL, entry, phase, most=99)
    assert statuses(results) <= {Status.PASSED, Status.SKIPPED}
    classes = {one.origin.form for one in results}
    assert "bounded" in classes
    assert (classes == {"bounded"}) is (entry == "masked_select")


def test_the_control_passes_where_a_result_is_a_conjugate_view() -> None:
    assert statuses(run(CONTROL, "conj", dtype="complex32")) == {Status.PASSED}


def test_the_control_refuses_a_tensor_without_memory() -> None:
    """One of the errors that ``gradient`` must raise is about a tensor on the device ``meta``."""
    assert statuses(run(CONTROL, "gradient", "errors", most=99)) == {Status.PASSED}


@pytest.mark.kept("unique_consecutive")
@pytest.mark.parametrize("entry", ["unique", "unique_consecutive"])
def test_rows_are_told_apart_along_an_axis_of_any_input(entry: str) -> None:
    """Some samples are 1-d and name their only axis."""
    results = run(CONTROL, entry, most=sys.maxsize)
    assert statuses(results) == {Status.PASSED}
    assert {one.origin.form for one in results} == {"bounded"}


def test_a_record_says_what_ran() -> None:
    [first, *_] = run(CONTROL, "add")
    assert first.op == "add"
    assert first.category == "elementwise"
    assert first.origin.suite == "opinfo"
    assert first.origin.form == "native"
    assert "aten.add.Tensor" in first.origin.overloads
    assert (
        first.comparisons[0]["accuracy"]["ulp_error"] == first.comparisons[0]["accuracy"]["control_ulp_error"]
    )
    assert CaseResult.from_dict(first.to_dict()) == first


def test_samples_are_the_same_every_time() -> None:
    first, again = (run(CONTROL, "cumsum") for _ in range(2))
    assert [one.case_id for one in first] == [one.case_id for one in again]
    assert [one.comparisons for one in first] == [one.comparisons for one in again]


def changed(function: Callable[[Any], Any]) -> Callable[[Answer], Answer]:
    return lambda answer: replace(answer, outputs=[function(one) for one in answer.outputs or ()])


DEFECTS: dict[str, tuple[Callable[[Answer], Answer], str, str, str]] = {
    "sign": (changed(lambda one: -one), "cumsum", "forward", "not within"),
    "dtype": (changed(lambda one: one.double()), "cumsum", "forward", "dtype float64"),
    "shape": (changed(lambda one: one[None]), "cumsum", "forward", "shape"),
    "lost output": (
        lambda answer: replace(answer, outputs=(answer.outputs or [])[:1]),
        "sort",
        "forward",
        "results",
    ),
    "gradient": (changed(lambda one: one * 2), "cumsum", "backward", "not within"),
    "second order": (changed(lambda one: one + 1), "mul", "second_order", "not within"),
    "written twice": (changed(lambda one: one + 1), "cumsum", "inplace", "not within"),
    "uninitialised": (changed(lambda one: one.double()), "empty", "forward", "dtype torch.float64"),
    "distribution": (changed(lambda one: one * 1.5), "uniform", "forward", "distribution"),
    "count": (changed(lambda one: one + 1), "nonzero", "forward", "not equal"),
    "bounded gradient": (changed(lambda one: one + 1), "masked_select", "backward", "not within"),
    "length": (changed(lambda one: one + 1), "tensor_split", "forward", "not within"),
    "repeats": (changed(lambda one: one + 1), "repeat_interleave", "forward", "not"),
    "factors": (changed(lambda one: one * 1.01), "linalg.eigh", "forward", "not within"),
    "eigenvectors": (changed(lambda one: one * 1.01), "linalg.eig", "forward", "not within"),
    "eigenvalues": (changed(lambda one: one * 1.01), "linalg.eigvals", "forward", "not within"),
    "gradient without an order": (changed(lambda one: one * 1.01), "linalg.eig", "backward", "not within"),
    "places": (changed(lambda one: one.flip(-1) if one.dim() else one), "argsort", "forward", "elements"),
    "selected": (changed(lambda one: one + 1), "kthvalue", "forward", "not within"),
    "middle": (changed(lambda one: one + 1), "nanmedian", "forward", "not within"),
    "commonest": (changed(lambda one: one + 1), "mode", "forward", "not within"),
    "drawn factors": (changed(lambda one: one * 1.5), "svd_lowrank", "forward", "not within|another"),
    "named twice": (
        changed(lambda one: ~one if one.dtype == torch.bool else one),
        "topk",
        "forward",
        "elements",
    ),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(name: str) -> None:
    change, entry, phase, message = DEFECTS[name]
    results = run(Defective(change), entry, phase)
    wrong = [one for one in results if one.status is Status.MISMATCH]
    assert wrong
    assert any(re.search(message, one.reason) for one in wrong), [one.reason for one in wrong]
    assert wrong[0].rerun.startswith(
        f"optest run --suite opinfo --op {entry} --dtype float32 --phase {phase}"
    )


def flipped(tensor: Any) -> Any:
    return tensor.flip(-1) if tensor.dim() else tensor


def all_alike(tensor: Any) -> Any:
    return tensor[..., :1].expand_as(tensor).clone() if tensor.dim() else tensor


@pytest.mark.kept("bernoulli-forward-flipped")
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("entry", "phase", "change"),
    [
        ("bernoulli", "forward", flipped),
        ("normal", "forward", flipped),
        ("nn.functional.dropout", "forward", flipped),
        ("nn.functional.dropout", "backward", flipped),
        ("rand_like", "forward", all_alike),
        ("exponential", "inplace", all_alike),
    ],
)
def test_random_results_in_the_wrong_places_are_found(
    entry: str, phase: str, change: Callable[[Any], Any]
) -> None:
    results = run(Defective(changed(change)), entry, phase, most=5)
    assert any("deviation" in one.reason for one in results), [one.reason for one in results]
    assert statuses(run(CONTROL, entry, phase, most=5)) <= {Status.PASSED, Status.SKIPPED}


def one_off(tensor: Any) -> Any:
    """Return the tensor with its smallest number above 0.05 in magnitude increased by 12 %."""
    flat = tensor.reshape(-1).clone()
    sizes = torch.where(flat.abs() > 0.05, flat.abs().float(), torch.inf)
    if flat.numel():
        flat[sizes.argmin()] *= 1.12
    return flat.reshape(tensor.shape)


@pytest.mark.kept("exp-forward-bfloat16")
@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("entry", "phase"),
    [
        ("exp", "forward"),
        ("mul", "forward"),
        ("tanh", "backward"),
        ("square", "forward_mode"),
        ("nn.functional.leaky_relu", "forward"),
        ("nn.functional.elu", "backward"),
    ],
)
def test_one_wrong_element_of_an_elementwise_result_is_found(entry: str, phase: str, dtype: str) -> None:
    results = run(Defective(changed(one_off)), entry, phase, dtype)
    assert {one.status for one in results if "empty" not in one.origin.note} == {Status.MISMATCH}
    assert statuses(run(CONTROL, entry, phase, dtype)) == {Status.PASSED}


def test_reductions_keep_the_bound_of_their_sums() -> None:
    """A sum is not elementwise; an activation and its gradient are."""
    assert not is_elementwise(next(cases_of(Group("opinfo", "sum", "bfloat16", "forward"))))
    assert is_elementwise(next(cases_of(Group("opinfo", "nn.functional.gelu", "bfloat16", "backward"))))


@pytest.mark.parametrize("dtype", ["bfloat16", "complex32"])
def test_the_bound_of_an_element_is_one_rounding_of_what_it_is_made_of(dtype: str) -> None:
    """For x − y, the bound is one unit of the result plus one unit of each operand."""
    case = next(cases_of(Group("opinfo", "sub", dtype, "forward")))
    [bound] = bounds_of(case, [one.dtype for one in case.expected])
    left, right = (one.to(torch.complex128) for one in case.call.tensors[:2])
    unit = 2.0**-8 if dtype == "bfloat16" else 2.0**-11
    most = (unit * ((left - right).abs() + left.abs() + right.abs())).numpy()
    found = bound if dtype == "bfloat16" else bound[..., 0]
    assert (found <= most * 1.0001).all()
    assert (found >= most / 4).all()


def test_a_stream_that_stands_still_is_found() -> None:
    results = run(Seeded("cpu"), "normal", most=1)
    assert "the stream does not advance" in results[0].reason


def test_a_seed_that_is_ignored_is_found() -> None:
    results = run(SeededOnce("cpu"), "normal")
    assert {one.reason for one in results} == {"another seed gave the same values"}


def test_runs_that_differ_are_found() -> None:
    count = Counter[str]()

    def drift(answer: Answer) -> Answer:
        count["answers"] += 1
        first, *rest = answer.outputs or ()
        return replace(answer, outputs=[first, *(one + 1e-7 for one in rest)])

    results = run(Defective(drift), "cumsum", "determinism", most=1)
    assert count["answers"] == 1
    assert "run 2 gave other bits" in results[0].reason


@pytest.mark.parametrize("phase", ["forward", "backward", "perf"])
def test_factors_of_a_drawn_subspace_agree_with_themselves(phase: str) -> None:
    """The drawn subspace also affects their product, because its rank is below the matrix's."""
    results = run(CONTROL, "svd_lowrank", phase, most=2)
    assert statuses(results) == {Status.PASSED}
    assert all(one.reason.startswith("by the distribution") for one in results)


def test_the_bounded_form_needs_no_kernel_that_a_dtype_lacks() -> None:
    for dtype in ("uint16", "uint32", "uint64"):
        assert statuses(run(CONTROL, "unique", dtype=dtype, most=8)) == {Status.PASSED}


@pytest.mark.parametrize(("drift", "status"), [(1e-7, Status.PASSED), (1e-2, Status.MISMATCH)])
def test_runs_of_what_has_no_determined_bits_must_agree_in_value(drift: float, status: Status) -> None:
    """LAPACK's results depend on memory addresses, so eager's own bits of ``lstsq`` differ between runs."""

    def drifted(answer: Answer) -> Answer:
        first, *rest = answer.outputs or ()
        return replace(answer, outputs=[first, *(one * (1 + drift) for one in rest)])

    [found] = run(Defective(drifted), "linalg.lstsq", "perf", most=1)
    assert found.status is status
    assert found.status is Status.PASSED or "run 2 gave other values" in found.reason


def test_a_fallback_is_no_pass() -> None:
    fallen = Defective(lambda answer: replace(answer, fallback=("aten.cumsum.default",)))
    results = run(fallen, "cumsum")
    assert statuses(results) == {Status.FALLBACK}
    assert "aten.cumsum.default" in results[0].reason
    wrong = Defective(lambda answer: replace(changed(torch.neg)(answer), fallback=("aten.cumsum.default",)))
    assert statuses(run(wrong, "cumsum", most=2)) == {Status.MISMATCH}


def test_what_is_declined_and_what_fails() -> None:
    assert statuses(run(Defective(lambda _: Answer(unsupported="no scans")), "cumsum")) == {
        Status.UNSUPPORTED
    }
    [first, *_] = run(Defective(lambda _: Answer(error=ValueError("odd"))), "cumsum")
    assert (first.status, first.reason) == (Status.ERROR, "ValueError: odd")


def test_errors_must_be_raised_with_eagers_type_and_message() -> None:
    taken = Defective(lambda _: Answer([]))
    assert "nothing was raised; there must be a" in run(taken, "cat", "errors")[0].reason
    other = Defective(lambda _: Answer(error=KeyError("something else")))
    assert "KeyError" in run(other, "cat", "errors")[0].reason

    def wrap(answer: Answer) -> Answer:
        wrapped = RuntimeError("the compiler failed")
        wrapped.__cause__ = answer.error
        return Answer(error=wrapped)

    assert statuses(run(Defective(wrap), "cat", "errors")) == {Status.PASSED}


def test_a_call_that_must_raise_runs_alone_and_may_give_any_number_of_results() -> None:
    """A wrong number of results must not become an error, whose message could match the expected one."""
    ran: list[int] = []

    def at_once(calls: Sequence[Call]) -> tuple[list[list[Any]], Answer]:
        ran.append(len(calls))
        return [[torch.ones(1)] * 2], Answer()

    calls = [Call(lambda x: [x], (torch.ones(1),))] * 3
    found = halved(calls, at_once, lambda error: Answer(error=error))
    assert ran == [1, 1, 1]
    assert [len(one.outputs or ()) for one in found] == [2, 2, 2]


class Modes(torch.overrides.TorchFunctionMode):
    """Counts how often the gradient mode is set."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch._C._set_grad_enabled
        return func(*args, **(kwargs or {}))


def test_forward_calls_of_one_program_share_a_block_without_gradients() -> None:
    """Setting the gradient mode adds an operation, and ``torch.export`` takes time to remove each one."""
    calls = [Call(lambda x: [x * 2, torch.ones_like(x)], (torch.full((1,), i + 1.0),)) for i in range(3)]
    every, operands = together(calls)
    leaves = [one.requires_grad_() for one in operands]
    with Modes() as modes:
        found = every(*leaves)
    assert modes.count == 2
    assert [one.tolist() for one in found] == [[2.0], [1.0], [4.0], [1.0], [6.0], [1.0]]
    assert not any(one.requires_grad for one in found)


def test_what_a_phase_is_not_for_takes_no_sample_s_place() -> None:
    """Samples without a smaller batch are left out; functions of one tensor get their required arguments."""
    assert statuses(run(CONTROL, "softmax", "dynamic_batch", most=2)) == {Status.PASSED}
    assert statuses(run(CONTROL, "mvlgamma.mvlgamma_p_3", "promotion", dtype="int64")) == {Status.PASSED}


def test_a_group_says_how_many_samples_it_has() -> None:
    [first, second] = run(CONTROL, "cumsum", most=2)
    assert first.origin.among == len(run(CONTROL, "cumsum", most=99)) > 2
    assert second.origin.among == 0


@pytest.mark.parametrize(("entry", "phase"), [("jiterator_unary", "forward"), ("linalg.eigvals", "special")])
def test_an_untestable_entry_stays_in_the_denominator(entry: str, phase: str) -> None:
    [only] = run(CONTROL, entry, phase)
    assert only.status is Status.SKIPPED
    assert only.reason.startswith("untestable: ")
    assert only.origin.form == "untestable"


def test_what_is_untestable_in_one_phase_is_tested_in_the_others() -> None:
    assert statuses(run(CONTROL, "linalg.eigvals", most=2)) == {Status.PASSED}


def test_special_operands_have_special_values() -> None:
    cases = list(cases_of(Group("opinfo", "add", "float32", "special")))
    large = next(one for one in cases if min(tensor.numel() for tensor in one.call.tensors) >= 8)
    first, second = (one.flatten() for one in large.call.tensors[:2])
    for tensor in (first, second):
        assert int(tensor.isnan().sum()) == int(tensor.isposinf().sum()) == int(tensor.isneginf().sum()) == 1
        assert bool(((tensor == 0) & tensor.signbit()).any())
    assert int(first.isnan().nonzero()) != int(second.isnan().nonzero())
    assert all(one.isnan().any() for case in cases for one in case.call.tensors if one.numel())
    assert not entries_of("opinfo")["add"].has("special", "int64")


def test_reference_samples_vary_what_others_do_not() -> None:
    def alphas(phase: str) -> set[float]:
        group = Group("opinfo", "nn.functional.elu", "float32", phase)
        return {one.bound.kwargs.get("alpha", 1.0) for one in cases_of(group)}

    assert alphas("forward") == {1.0}
    assert alphas("reference") == {1.0, 0.8}
    assert not entries_of("opinfo")["sum"].has("reference", "float32")


@pytest.mark.parametrize("entry", ["_native_batch_norm_legit", "nn.functional.ctc_loss", "nonzero_static"])
def test_added_samples_come_last_and_pass(entry: str) -> None:
    group = Group("opinfo", entry, "float32", "forward")
    added = list(additions(entries_of("opinfo")[entry].info, torch.float32))
    numbers = tuple(one.number for one in planned(group)[-len(added) :])
    results = run_group(CONTROL, Request(group, TARGET, numbers=numbers)).results
    assert statuses(results) == {Status.PASSED}
    assert [one.shapes["input0"] for one in results] == [tuple(one.tensors[0].shape) for one in added]


def test_samples_are_not_seeded_on_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The databases seed all devices for each sample, which takes longer than most samples."""
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    [group] = plan(Selection("opinfo", entries=("atan2",), dtypes=("float32",), phases=("forward",)))
    before = [one.call.tensors for one in cases_of(group)]
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    after = [one.make().call.tensors for one in planned(group)]
    assert not seeded
    for one, two in zip(before, after, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
