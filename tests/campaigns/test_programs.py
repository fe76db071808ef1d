"""Checks which differences the campaign of random programs notices, and what its programs contain."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import compiled_programs
import exported_programs
import hand_called
import pytest
import torch
from compiled_programs import Made, Tries
from documented_limits import Limits
from export_maker import CONTROL, ExportedProgram, make_exported
from program_maker import HEAD, Program, make
from program_templates import EXPRESSIONS

from torchstone.backend import outputs, part, passes, region
from torchstone.compiler import signature as signature_reader
from torchstone.lowering import load
from torchstone.parity.faults.broken import in_place
from torchstone.parity.faults.catalogue import Fault
from torchstone.parity.operators import Sample

aten = torch.ops.aten
SIZES = (4, 5)


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def program(*statements: str, result: str, **options: Any) -> Program:
    """Return a program of a matrix and a number, called with two sizes."""
    calls = tuple((f"made({n}, ({size}, 3), torch.float32)", str(n)) for n, size in enumerate(SIZES))
    return Program(("a", "n"), statements, result, calls, **options)


def spoiled(overload: Any, change: Callable[[Any], Any]) -> AbstractContextManager[Any]:
    return in_place(load().get(overload), Fault("spoiled", "", result=change))


def copies(node: Any) -> Callable[[Any], Any]:
    apply = APPLIED(node)
    return lambda tensor: apply(tensor).clone()


APPLIED = outputs._applied
DRAWS = count()


def refuse(*_: Any, **__: Any) -> Any:
    raise KeyError("no such thing")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("fault", "made", "kind"),
    [
        (
            lambda: spoiled(aten.sin.default, lambda x: -x),
            program("t0 = a * 2", "t1 = t0.sin()", "t2 = t1 + n", result="(t0, t1, t2)"),
            "values",
        ),
        (
            lambda: spoiled(aten.cos.default, lambda x: -x),
            program("t0 = a.sin()", "t1 = t0[n:]", result="(t0, a)", gradients=True),
            "gradients",
        ),
        (
            lambda: patch.object(outputs, "_applied", copies),
            program("t0 = a + 1", "t1 = (a * 2).t()", "t2 = t1[1:]", result="(t0, t1, t2)"),
            "form",  # an offset
        ),
        pytest.param(
            lambda: patch.object(region, "foreach_copy", lambda into, values: None),
            program("t0 = a.exp()", "a.add_(t0)", result="t0"),
            "values",
            marks=pytest.mark.conformance,
        ),
        (
            lambda: patch.object(
                part, "draw_seed", lambda: torch.tensor([next(DRAWS), 0]).view(torch.uint64)
            ),
            program("t0 = F.dropout(a, 0.5)", result="t0", drawn=True),
            "repeated draws",
        ),
        pytest.param(
            lambda: patch.object(passes, "split_outputs", refuse),
            program("t0 = a + 1", result="t0"),
            "raises BackendCompilerFailed",
            marks=pytest.mark.conformance,
        ),
    ],
    ids=["values", "gradients", "views", "mutation", "seeds", "errors"],
)
def test_faults_are_found_and_made_small(fault: Any, made: Program, kind: str, tmp_path: Path) -> None:
    tries = Tries(0)
    assert tries.attempt(Made(made)) in [("agrees", ""), ("drawn", ""), ("refused", "")]
    with fault():
        found, defect = tries.attempt(Made(made))
    assert found == kind, defect
    script = defect.partition("\n")[2]
    script = script[script.index("import torch") :]
    assert script.count("    lambda: ") == 1  # of two calls
    assert script.count("\n    t") + script.count("\n    a.") <= len(made.statements)
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_what_eager_does_for_inputs_that_are_a_rounding_error_off_is_no_difference() -> None:
    made = program("t0 = a * 1e7", "t1 = t0.sin()", result="t1")
    with spoiled(aten.mul.Tensor, lambda x: x * (1 + 1e-7)):
        assert Tries(0).attempt(Made(made)) == ("ill-conditioned", "")


@pytest.mark.parametrize(
    "statements",
    [
        ("t0 = (a * (1 + 2j)).abs()", "t1 = t0.view(torch.int32)"),  # one ULP, seen as an integer
        ("t0 = (a * 9).erf()", "t1 = t0.double()"),  # flat, and float64 in name only
    ],
)
def test_what_eager_does_for_results_that_are_a_rounding_error_off_is_no_difference(
    statements: tuple[str, ...],
) -> None:
    made = program(*statements, result="t1")
    overload = aten.abs.default if "abs" in statements[0] else aten.erf.default
    with spoiled(overload, lambda x: x * (1 + 2.4e-7)):
        assert Tries(0).attempt(Made(made))[0] in ("ill-conditioned", "as exact as eager")
    with spoiled(overload, lambda x: x * 1.0001):
        assert Tries(0).attempt(Made(made))[0] == "values"


def test_what_is_as_exact_as_eager_is_no_difference() -> None:
    """Eager rounds ``log_softmax`` in bfloat16 several times; compiled code rounds once."""
    calls = (("made(0, (5, 5, 2), torch.bfloat16)",),)
    made = Program(("a",), ("t0 = a.log_softmax(-1)",), "t0", calls)
    assert Tries(0).attempt(Made(made)) == ("as exact as eager", "")
    cast = replace(made, statements=("t0 = a.float().bfloat16().log_softmax(-1)",))
    assert Tries(0).attempt(Made(cast)) == ("as exact as eager", "")
    with spoiled(aten._log_softmax.default, lambda x: x * 1.02):
        found, _ = Tries(0).attempt(Made(made))
    assert found == "values"


nan, inf = torch.nan, torch.inf


@pytest.mark.parametrize(
    ("ours", "eager", "exact", "judged"),
    [
        pytest.param([1.0, 2.001], [1.0, 2.002], [1.0, 2.0], True, id="nearer"),
        pytest.param([1.0, 2.005], [1.0, 2.002], [1.0, 2.0], False, id="farther"),
        pytest.param([-inf], [nan], [-inf], True, id="right infinity"),
        pytest.param([inf], [nan], [1e45], True, id="too large for the dtype"),
        pytest.param([-inf], [nan], [1e45], False, id="wrong infinity"),
        pytest.param([nan, 2.001], [nan, 2.002], [7.0, 2.0], True, id="eager's NaN"),
        pytest.param([1.0], [nan], [7.0], True, id="a number where eager has none"),
        pytest.param([1.0], [nan], [nan], False, id="a number where there is none"),
        pytest.param([nan], [1.0], [7.0], False, id="NaN where eager has a number"),
    ],
)
def test_a_result_is_judged_by_the_one_in_float64(
    ours: list[float], eager: list[float], exact: list[float], judged: bool
) -> None:
    in_float32 = (torch.tensor(values) for values in (ours, eager))
    assert compiled_programs._as_exact(*in_float32, torch.tensor(exact, dtype=torch.float64)) is judged


def test_the_run_in_float64_has_constants_in_float64() -> None:
    made = Program(("a",), ("t0 = torch.eye(2) @ a",), "t0", (("made(0, (2, 2), torch.float32)",),))
    run = compiled_programs._in_float64(made, made.calls[0], compiled_programs._called)
    assert [one.dtype for one in run.values] == [torch.float64] * len(run.values)
    assert torch.get_default_dtype() == torch.float32


def test_a_dtype_that_eager_has_no_kernel_for_is_no_difference() -> None:
    calls = (("made(0, (3,), torch.int64)",),)
    made = Program(("a",), ("t0 = torch.logaddexp(a, a)",), "t0", calls)
    assert Tries(0).attempt(Made(made)) == ("without a kernel", "")


def test_a_documented_limit_excuses_what_depends_on_it_alone() -> None:
    made = program("t0 = (a * 1e20).to(torch.int32)", "t1 = t0 + 1", "t2 = a.sin()", result="(t1, t2)")
    with spoiled(aten.add.Tensor, lambda x: x + 1):
        found, defect = Tries(0).attempt(Made(made))
    assert (found, defect) == ("limit: a float beyond an integer dtype", "")
    with spoiled(aten.sin.default, lambda x: -x):
        assert Tries(0).attempt(Made(made))[0] == "values"


@pytest.mark.parametrize(
    ("addends", "met"),
    [(([-0.0], [0.0]), True), (([-0.0], [-0.0]), False), (([-0.0, 1.0], [0.0, 1.0]), False)],
)
def test_a_zero_that_is_left_out_of_a_sum_is_a_limit(addends: tuple[Any, Any], met: bool) -> None:
    one, other = map(torch.tensor, addends)
    with Limits() as limits:
        result, rest = one + other, one * 2
    assert limits.found == ({"a zero is added to -0.0"} if met else set())
    assert limits.reach(result) is met
    assert not limits.reach(rest)


@pytest.mark.parametrize(
    ("total", "met"),
    [
        (lambda x: x[0, 0].sum(), True),
        (lambda x: x[:1].mean(0), True),
        (lambda x: x.nansum(1, keepdim=True), False),
        (lambda x: x.cumsum(0), True),
        (lambda x: x[:, 1:].cumsum(0), False),
        (lambda x: x[1].sum(), False),
        (lambda x: x[0, :1].bool().sum(), False),
    ],
)
def test_a_sum_of_one_negative_zero_is_a_limit(total: Callable[[torch.Tensor], Any], met: bool) -> None:
    x = torch.tensor([[-0.0, 0.0], [1.0, -0.0]])
    with Limits() as limits:
        assert limits.reach(total(x)) is met
    assert limits.found == ({"a zero is added to -0.0"} if met else set())


def test_the_bits_of_a_nan_are_a_limit() -> None:
    made = torch.tensor([1.0, torch.nan])
    for look, met in ((lambda: made.view(torch.int32), True), (lambda: made.view(2, 1), False)):
        with Limits() as limits:
            look()
        assert limits.found == ({"the bits of a NaN"} if met else set())


@pytest.mark.parametrize(
    ("x", "degree", "met"),
    [(0.5, 2.0, False), (torch.nan, 2.0, True), (0.5, torch.nan, True), (0.5, 1e30, True)],
)
def test_polynomials_of_what_is_not_a_number_are_a_limit(x: float, degree: float, met: bool) -> None:
    given = torch.tensor([x])
    with Limits() as limits:
        result = torch.special.chebyshev_polynomial_t(given, degree)
    assert limits.found == ({"a polynomial of a NaN or of a degree beyond int64"} if met else set())
    assert limits.reach(result) is met


@pytest.mark.parametrize(("x", "met"), [(torch.inf, False), (torch.nan, True)])
def test_the_gradient_of_an_activation_at_a_nan_is_a_limit(x: float, met: bool) -> None:
    given = torch.tensor([x])
    for result in (
        lambda: aten.elu_backward(torch.ones(1), 1, 1, 1, False, given),
        lambda: aten.hardswish_backward(torch.ones(1), given),
    ):
        with Limits() as limits:
            result()
        assert limits.found == ({"a gradient at a NaN"} if met else set())


@pytest.mark.parametrize(("degree", "met"), [(60.0, False), (90.0, True)])
def test_a_polynomial_that_overflows_is_a_limit(degree: float, met: bool) -> None:
    given = torch.tensor([2.0, 0.5])
    with Limits() as limits:
        result = torch.special.chebyshev_polynomial_w(given, torch.tensor(degree))
    assert limits.found == ({"a polynomial that overflows"} if met else set())
    assert limits.reach(result) is met


@pytest.mark.parametrize(("x", "met"), [(1e10, False), (1e30, True)])
def test_squares_that_overflow_are_a_limit(x: float, met: bool) -> None:
    given = torch.tensor([[x], [0.5]])
    for function in (torch.var, lambda one: torch.nn.functional.batch_norm(one, None, None, training=True)):
        with Limits() as limits:
            function(given)
        assert limits.found == ({"squares of deviations overflow"} if met else set())


@pytest.mark.parametrize(("scale", "met"), [(1e10, False), (1e30, True)])
def test_products_in_the_gradient_of_batch_norm_that_overflow_are_a_limit(scale: float, met: bool) -> None:
    given, ones = torch.tensor([[1.0], [0.5]]), torch.ones(1)
    with Limits() as limits:
        torch.ops.aten.native_batch_norm_backward(
            given, given, None, None, None, ones, ones * scale, True, 1e-5, [True, False, False]
        )
    message = "a product in the gradient of batch normalization overflows"
    assert limits.found == ({message} if met else set())


@pytest.mark.parametrize(
    ("function", "values", "met"),
    [
        (torch.cumprod, [0.0, 1e30, 1e30], True),
        (torch.cumprod, [torch.inf, 1e-30, 1e-30], True),
        (torch.cumprod, [0.0, 1e30, 1e-30, 1e5], False),
        (torch.cumprod, [torch.inf, torch.nan, 0.0], False),
        (torch.cumsum, [2e38, 2e38, -2e38], True),
        (torch.cumsum, [1e38, 1e38, -torch.inf], False),
    ],
)
def test_a_running_sum_that_overflows_is_a_limit(function: Any, values: list[float], met: bool) -> None:
    for dtype, shows in ((torch.float32, met), (torch.float64, False)):
        with Limits() as limits:
            result = function(torch.tensor(values, dtype=dtype), 0)
        name = "a running sum or product that overflows on the way"
        assert limits.found == ({name} if shows else set())
        assert limits.reach(result) is shows


@pytest.mark.parametrize(("x", "met"), [(0.0, False), (1e-30, False), (1e-40, True)])
@pytest.mark.parametrize("function", [lambda x: x == 0, torch.sign, torch.Tensor.bool, torch.count_nonzero])
def test_what_tells_a_subnormal_number_from_zero_is_a_limit(function: Any, x: float, met: bool) -> None:
    with Limits() as limits:
        result = function(torch.tensor([1.0, x]))
    assert limits.found == ({"a comparison of subnormal numbers"} if met else set())
    assert limits.reach(result) is met


@pytest.mark.parametrize(
    ("dtype", "met"),
    [
        (torch.float64, True),
        (torch.complex128, True),
        (torch.bool, True),
        (torch.bfloat16, False),
        (torch.int32, False),
    ],
)
def test_a_conversion_that_keeps_a_subnormal_number_from_zero_is_a_limit(
    dtype: torch.dtype, met: bool
) -> None:
    with Limits() as limits:
        torch.tensor([1.0, 1e-40]).to(dtype)
    assert limits.found == ({"a comparison of subnormal numbers"} if met else set())


@pytest.mark.parametrize(("x", "met"), [(1e30, False), (float("inf"), True)])
def test_the_mean_of_infinite_values_is_a_limit(x: float, met: bool) -> None:
    given = torch.tensor([1.0, x], dtype=torch.float64)
    with Limits() as limits:
        deviation, mean = torch.std_mean(given)
    assert (limits.reach(deviation), limits.reach(mean)) == (False, met)
    with Limits() as limits:
        given.var()  # has no mean
    assert limits.found == set()


@pytest.mark.parametrize(("x", "met"), [(2.0, False), (1.0, True)])
def test_the_index_of_one_of_equal_elements_is_a_limit(x: float, met: bool) -> None:
    given = torch.tensor([1.0, x, 3.0])
    for function in (torch.nanmedian, torch.mode, torch.Tensor.median, lambda one, _: torch.mode(one)):
        with Limits() as limits:
            value, index = function(given, 0)
        assert (limits.reach(value), limits.reach(index)) == (False, met)
    with Limits() as limits:
        given.median()  # has no index
    assert limits.found == set()


@pytest.mark.parametrize(("logit", "met"), [(50.0, False), (1e4, True)])
def test_a_softmax_of_large_values_is_a_limit(logit: float, met: bool) -> None:
    with Limits() as limits:
        torch.tensor([0.0, logit]).log_softmax(0)
    assert limits.found == ({"a softmax of large values"} if met else set())


@pytest.mark.parametrize(("exponent", "met"), [(1e10, False), (1e30, True)])
def test_a_huge_exponent_of_zeta_is_a_limit(exponent: float, met: bool) -> None:
    with Limits() as limits:
        torch.special.zeta(torch.tensor(exponent), 2.0)
    assert limits.found == ({"a huge exponent of zeta"} if met else set())


@pytest.mark.parametrize(("value", "met"), [(1.0, False), (torch.inf, True)])
def test_an_infinite_neighbor_in_resampling_is_a_limit(value: float, met: bool) -> None:
    given = torch.tensor([[[value, 2.0]]])
    with Limits() as limits:
        result = torch.nn.functional.interpolate(given, size=2, mode="linear")
    assert limits.found == ({"an infinite neighbor in resampling"} if met else set())
    assert limits.reach(result) is met


@pytest.mark.parametrize(
    ("write", "met"),
    [
        (lambda x: torch.sin(x, out=x.T), True),
        (lambda x: x[1:].add_(x[:-1]), True),
        (lambda x: torch.sin(x, out=x), False),
        (lambda x: x.add_(x), False),
        (lambda x: x[1].add_(x[0]), False),
    ],
)
def test_an_operator_that_overwrites_what_it_reads_is_a_limit(
    write: Callable[[torch.Tensor], Any], met: bool
) -> None:
    x = torch.rand(3, 7)[:, :6:2]  # with gaps: PyTorch does not look for an overlap
    with Limits() as limits:
        write(x)
    assert limits.found == ({"an operator that overwrites what it reads"} if met else set())
    assert limits.reach(x) is met


@pytest.mark.parametrize("function", [torch.linalg.svd, torch.linalg.eigh, torch.linalg.eig])
def test_the_sign_of_a_vector_is_a_limit(function: Callable[[torch.Tensor], Any]) -> None:
    with Limits() as limits:
        results = function(torch.ones(1, 1))
    assert limits.found == {"the sign of a vector"}
    vectors = [place for place, one in enumerate(results) if limits.reach(one)]
    assert vectors == ([0, 2] if len(results) == 3 else [1])


@pytest.mark.parametrize(("size", "met"), [(1, False), (2, True)])
@pytest.mark.parametrize("function", [torch.linalg.eigvals, lambda a: torch.linalg.eig(a)[0]])
def test_the_order_of_eigenvalues_is_a_limit(function: Any, size: int, met: bool) -> None:
    with Limits() as limits:
        result = function(torch.rand(size, size))
    assert limits.found - {"the sign of a vector"} == ({"the order of eigenvalues"} if met else set())
    assert limits.reach(result) is met


@pytest.mark.parametrize(("value", "met"), [(1.0, False), (torch.nan, True), (torch.inf, True)])
@pytest.mark.parametrize(
    "function",
    [
        lambda a: torch.geqrf(a)[0],
        lambda a: torch.linalg.inv_ex(a)[0],
        lambda a: torch.linalg.solve_ex(torch.eye(2), a)[0],
        torch.linalg.det,
    ],
)
def test_a_factorization_of_infinite_values_is_a_limit(function: Any, value: float, met: bool) -> None:
    with Limits() as limits:
        result = function(torch.tensor([[value, 2.0], [3.0, 4.0]]))
    assert limits.found == ({"a factorization of infinite values"} if met else set())
    assert limits.reach(result) is met


@pytest.mark.parametrize(("scale", "met"), [(0.0, True), (1.0, False)])
def test_the_sign_of_a_zero_in_a_gradient_is_a_limit_where_bits_are_read(scale: float, met: bool) -> None:
    x, statistics = torch.randn(1, 2, 3), torch.ones(1, 1)
    with Limits() as limits:
        given = (scale * x, x, statistics, statistics, None, 1, 2, 3, 1, [True, False, False])
        values = torch.ops.aten.native_group_norm_backward(*given)[0] * 2
        rest, bits = values + 1, values.view(torch.int32)
    assert limits.found == ({"the sign of a zero"} if met else set())
    assert limits.reach(bits) is met
    assert not limits.reach(rest)


def test_programs_are_repeated_from_seed_and_number() -> None:
    first = [make(3, number) for number in range(8)]
    assert first == [make(3, number) for number in range(8)]
    assert first != [make(4, number) for number in range(8)]
    assert len({one.definition for one in first}) == 8


@pytest.mark.conformance
def test_programs_call_operators_of_all_families() -> None:
    """They have every family of operators, in-place statements, and every kind of input."""
    texts = Counter[str]()
    made = [make(0, number) for number in range(150)]
    whole = "\n".join(one.script() for one in made)
    for family, templates in EXPRESSIONS.items():
        starts = {template.split("}", 1)[-1].split("(", 1)[0].split("{", 1)[0] for template in templates}
        texts[family] = sum(start in whole for start in starts if len(start) > 3)
    assert all(texts[family] for family in EXPRESSIONS)
    assert all(f'"{form}"' in whole for form in ("steps", "part", "transposed", "expanded"))
    assert {one.context for one in made} == {"", "no_grad", "inference_mode"}
    assert any(one.gradients for one in made)
    assert any(one.drawn for one in made)


def test_overloads_called_by_hand() -> None:
    """The campaign of overloads accepts a right lowering, and reports a wrong one."""
    tries = hand_called.Tries(0)
    made = [tries.make(number) for number in range(12)]
    assert [one.what for one in made] == [tries.make(number).what for number in range(12)]
    assert all(one.calls for one in made if one.overload is not aten._conj.default)
    call = hand_called.Made(aten.sin.default, (Sample((torch.rand(3) + 1,)), Sample((torch.ones(0),))), True)
    assert tries.attempt(call) == ("compiled", "")
    with spoiled(aten.sin.default, lambda x: -x):
        _, defect = tries.attempt(call)
    assert defect.count("mismatch") == 2  # exported and compiled


def exported(*statements: str, result: str, **options: Any) -> ExportedProgram:
    """Return a program of two matrices and a number, called with two sizes, or twice with one fixed size."""
    sizes = SIZES if options.get("sizes", "auto") != "fixed" else SIZES[:1] * 2
    calls = tuple(
        (*(f"made({10 * n + place}, ({size}, 3), torch.float32)" for place in (0, 1)), "2")
        for n, size in enumerate(sizes)
    )
    options = {"sizes": "auto", "head": HEAD + CONTROL, **options}
    return ExportedProgram(("a", "b", "n"), statements, result, calls, **options)


@pytest.mark.kept("errors")
@pytest.mark.parametrize(
    ("fault", "made", "kind"),
    [
        (
            lambda: spoiled(aten.sin.default, lambda x: -x),
            exported(
                "t0 = cond(a.sum() > 0, lambda u: u.sin(), lambda u: u.sin() * 2, (a,))", result="(t0, b)"
            ),
            "values",
        ),
        (
            lambda: spoiled(aten.add.Tensor, lambda x: x * 1.5),
            exported("b.add_(a)", "t0 = b * 2", result="t0", sizes="fixed", buffers=("b",)),
            "values",
        ),
        (
            lambda: patch.object(signature_reader, "assumed_of", lambda *_: []),
            exported("t0 = (a * 2 if a.shape[0] % 2 == 0 else a * 3)", "t1 = b + n", result="(t0, t1)"),
            "values",
        ),
        (
            lambda: patch("torchstone.program.save_artifact", refuse),
            exported("t0 = a + 1", "t1 = b * n", result="(t1, t0)", sizes="named"),
            "raises KeyError",
        ),
    ],
    ids=["control flow", "buffers", "sizes", "errors"],
)
def test_faults_in_exports_are_found_and_made_small(
    fault: Any, made: ExportedProgram, kind: str, tmp_path: Path
) -> None:
    tries = exported_programs.prepare(0, tmp_path)
    found, defect = tries.attempt(exported_programs.Made(made))
    assert (found, defect) in [("agrees", ""), ("exported again", "")]
    with fault():
        found, defect = tries.attempt(exported_programs.Made(made))
    assert found == kind, defect
    script = defect.partition("\n")[2]
    script = script[script.index("import torch") :]
    assert script.count("    lambda: ") == (2 if "% 2" in script else 1)  # the second call has another size
    assert "t1 = " not in script
    if kind == "values":
        compile(script, "script", "exec")


def test_later_calls_of_a_module_with_buffers_are_judged_by_float64(tmp_path: Path) -> None:
    """Eager rounds ``log_softmax`` in bfloat16 several times; a program rounds once."""
    calls = tuple((f"made({n}, (5, 5, 2), torch.bfloat16)", "made(3, (2,), torch.float32)") for n in range(3))
    statements = ("b.mul_(3)", "t0 = a.log_softmax(-1) * b.exp()")
    options: dict[str, Any] = {"head": HEAD + CONTROL, "sizes": "fixed", "buffers": ("b",)}
    made = exported_programs.Made(ExportedProgram(("a", "b"), statements, "(t0, a)", calls, **options))
    tries = exported_programs.prepare(0, tmp_path)
    assert tries.attempt(made) == ("as exact as eager", "")
    with spoiled(aten.mul.Tensor, lambda x: x * 1.01):
        assert tries.attempt(made)[0] == "values"


@pytest.mark.conformance
def test_exported_programs_are_of_all_kinds() -> None:
    made = [make_exported(0, number) for number in range(60)]
    assert made[:5] == [make_exported(0, number) for number in range(5)]
    whole = "\n".join(one.definition for one in made)
    assert {one.sizes for one in made} == {"fixed", "named", "auto"}
    assert any(one.buffers for one in made)
    assert any(one.checked for one in made)
    for call in ("cond(", "while_loop(", "scan(", "each(", "_backward(", "torch.ops.aten."):
        assert call in whole
