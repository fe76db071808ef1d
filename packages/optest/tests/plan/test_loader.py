from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from optest.core.case import BackendTarget, TestCase
from optest.core.tolerance import Tolerance, default_tolerance
from optest.errors import AttributeMismatch, ShapeError, UnknownName, UsageError
from optest.plan.entries import Flags
from optest.plan.loader import load
from optest.plan.options import ReportRequest, resolve

Write = Callable[..., Path]


def cases(**given: Any) -> list[TestCase]:
    return list(load(resolve(**given)))


def test_flags_alone_make_a_case() -> None:
    flags = Flags(ops=("relu",), dtypes=(("float16",),), shapes={"": [(8, 2048)]})
    [case] = cases(flags=flags, backend="stub", seed=3)
    assert case.op == "relu"
    assert (case.dtypes, case.shapes, case.attributes) == (("float16",), {"input0": (8, 2048)}, {})
    assert (case.backend, case.seed, case.phase) == (BackendTarget("stub"), 3, "forward")
    assert case.tolerance is None
    assert case.generator == "optest.generators:RandomTensorGenerator"
    assert case.output_shapes == {"output0": (8, 2048)}


def test_an_operator_without_shapes_has_its_built_in_ones() -> None:
    found = cases(flags=Flags(ops=("relu",)))
    assert [(case.dtypes[0], case.shapes["input0"], case.note) for case in found] == [
        (dtype, shape, note)
        for shape, note in (((2, 3), ""), ((), "0-d"))
        for dtype in ("float16", "float32", "int8")
    ]


def test_lists_multiply(plan_file: Write) -> None:
    file = plan_file("""
        cases:
          - op: [relu, add]
            dtypes: [float16, float32]
            shapes: [[8, 2], [4]]
            seed: [0, 1, 2]
    """)
    found = cases(plan=file)
    seen = {(case.op, case.dtypes, case.shapes["input0"], case.seed) for case in found}
    expected = {
        (op, (dtype,) * inputs, shape, seed)
        for (op, inputs), dtype, shape, seed in itertools.product(
            (("relu", 1), ("add", 2)), ("float16", "float32"), ((8, 2), (4,)), range(3)
        )
    }
    assert seen == expected
    assert len(found) == len(expected)


def test_attributes_multiply_where_they_take_no_list(plan_file: Write) -> None:
    file = plan_file("""
        cases:
          - op: add
            dtypes: float32
            shapes:
              - {input0: [2, 3], input1: [3], output0: [2, 3]}
              - {input0: [[1], [2]], input1: [1]}
            attributes:
              - {alpha: [1, 0.5], pads: [1, 2]}
              - {mode: down}
    """)
    found = [
        (case.shapes["input0"], case.attributes) for case in cases(plan=file) if case.dtypes[1] != "int32"
    ]
    combinations = [
        {"alpha": 1.0, "pads": (1, 2), "mode": "up"},
        {"alpha": 0.5, "pads": (1, 2), "mode": "up"},
        {"alpha": 1.0, "pads": (), "mode": "down"},
    ]
    assert found == [(shape, one) for shape in ((2, 3), (1,), (2,)) for one in combinations]


def test_one_dtype_stands_for_inputs_that_agree_and_a_list_for_exactly_itself(plan_file: Write) -> None:
    file = plan_file("cases:\n  - {op: add, dtypes: [float32, [float32, int32]]}\n")
    assert [case.dtypes for case in cases(plan=file)] == [("float32", "float32"), ("float32", "int32")]


def test_defaults_and_driver_settings_merge(plan_file: Write) -> None:
    file = plan_file("""
        seed: 7
        backend: npu
        chip: ascend310b
        backend_config: {ascend: {timeout: 5, workdir: here}}
        defaults: {dtypes: float32, rtol: 0.5}
        cases:
          - op: relu
            backend_config: {ascend: {timeout: 9}}
          - {op: relu, rtol: 0.25, seed: 8}
    """)
    found = cases(plan=file)
    assert {case.dtypes for case in found} == {("float32",)}
    assert {case.backend for case in found} == {BackendTarget("npu", None, "ascend310b")}
    first, second = found[0], found[-1]
    workdir = str(file.parent / "here")
    assert first.backend_config == {"ascend": {"timeout": 9, "workdir": workdir}}
    assert second.backend_config == {"ascend": {"timeout": 5, "workdir": workdir}}
    assert (first.tolerance, first.seed) == (Tolerance(0.5, 1e-5), 7)
    assert (second.tolerance, second.seed) == (Tolerance(0.25, 1e-5), 8)


def test_files_of_a_driver_choose_the_dtypes(plan_file: Write) -> None:
    """Without dtypes in the plan, the dtypes declared for the input files apply."""
    plan = """
        backend: ascend
        cases:
          - op: relu
            DTYPES
            shapes: {x: [5]}
            backend_config: {ascend: {inputs: [{tensor: x, path: x.bin, dtype: float16}]}}
    """
    [found] = cases(plan=plan_file(plan.replace("DTYPES", "")))
    assert found.dtypes == ("float16",)
    [found] = cases(plan=plan_file(plan.replace("DTYPES", "dtypes: float32")))
    assert found.dtypes == ("float32",)
    assert len(cases(plan=plan_file(plan.replace("DTYPES", "")), backend="stub")) > 1


def test_settings_of_drivers_from_the_command_line(plan_file: Write) -> None:
    file = plan_file("""
        cases:
          - {op: relu, dtypes: float32, backend_config: {ascend: {timeout: 9, workdir: here}}}
    """)
    given = {"backend_config.ascend.timeout": [3], "backend_config.mine": [{"a": 1}]}
    [case, *_] = cases(plan=file, flags=Flags(attributes=given))
    workdir = str(file.parent / "here")
    assert case.backend_config == {"ascend": {"timeout": 3, "workdir": workdir}, "mine": {"a": 1}}
    assert case.attributes == {}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("backend_config", 3, "--attr backend_config names no setting of a driver"),
        ("backend_config.ascend", 3, "write backend_config.DRIVER.KEY=value"),
        ("backend_config.ascend.tiemout", 3, "'tiemout' was unexpected"),
    ],
)
def test_wrong_settings_from_the_command_line(name: str, value: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(flags=Flags(ops=("relu",), attributes={name: [value]}))


def test_the_command_line_wins(plan_file: Write) -> None:
    file = plan_file("""
        seed: 7
        backend: npu
        chip: ascend310b
        options: {workers: 3, report: json, retries: 2}
        cases:
          - {op: relu, dtypes: [float16, float32], shapes: {x: [5]}, rtol: 0.5}
    """)
    flags = Flags(dtypes=(("int8",),), shapes={"": [(9,)]}, atol=2.0)
    options = resolve(plan=file, flags=flags, seed=1, backend="stub", workers=1, reports=["junit:o.xml"])
    assert (options.backend, options.chip, options.workers, options.retries) == ("stub", None, 1, 2)
    assert options.reports == (ReportRequest("junit", Path("o.xml")),)
    [case] = load(options)
    assert (case.dtypes, case.shapes, case.seed) == (("int8",), {"input0": (9,)}, 1)
    assert case.tolerance == Tolerance(0.5, 2.0)


def test_tolerance_tables_reach_the_cases(plan_file: Write) -> None:
    file = plan_file("""
        tolerances:
          dtypes: {float16: {rtol: 0.1}}
          operators: {relu: {"*": {atol: 0.2}}}
        cases: [{op: relu, dtypes: [float16, float32]}]
    """)
    by_dtype = {case.dtypes[0]: case.tolerance for case in cases(plan=file)}
    assert by_dtype["float16"] == Tolerance(0.1, 0.2)
    assert by_dtype["float32"] == Tolerance(default_tolerance("float32").rtol, 0.2)


def test_a_tolerance_leaves_all_other_operators_and_dtypes_as_they_are(plan_file: Write) -> None:
    """Others keep their own tolerance, and with it their bound on rounding errors."""
    file = plan_file("""
        tolerances:
          dtypes: {float64: {rtol: 0.1}}
          categories: {arithmetic: {bfloat16: {atol: 0.3}}}
          operators: {relu: {float16: {rtol: 0.2}}}
        cases:
          - {op: relu, dtypes: [float16, float32]}
          - {op: add, dtypes: [float16, float32]}
          - {op: add, dtypes: float32, rtol: 0.5, seed: 7}
    """)
    found = {(case.op, case.dtypes[0], case.seed): case.tolerance for case in cases(plan=file)}
    assert len(found) == 5
    assert {key: one for key, one in found.items() if one is not None} == {
        ("relu", "float16", 0): Tolerance(0.2, 1e-5),
        ("add", "float32", 7): Tolerance(0.5, 1e-5),
    }


def test_variables_aliases_and_merge_keys(plan_file: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTEST_WIDTH", "12")
    file = plan_file("""
        defaults: &base {dtypes: float32, note: theirs}
        cases:
          - <<: *base
            op: relu
            note: "${OPTEST_WIDTH} wide"
            shapes: {input0: [2, "${OPTEST_WIDTH}", "${OPTEST_HEIGHT:-3}"]}
            backend_config: {command: {env: {HERE: "${PLAN_DIR}/run", RAW: "$${HOME}", DOLLAR: $1}}}
    """)
    [case] = cases(plan=file)
    assert (case.shapes, case.note) == ({"input0": (2, 12, 3)}, "12 wide")
    assert case.backend_config == {
        "command": {"env": {"HERE": f"{file.resolve().parent}/run", "RAW": "${HOME}", "DOLLAR": "$1"}}
    }


def test_includes_come_first_once_and_yield(plan_file: Write) -> None:
    plan_file(
        "seed: 1\nbackend: gpu\ncases: [{op: relu, dtypes: int8, shapes: {input0: [1]}}]\n", "sub/base.yaml"
    )
    plan_file(
        "include: base.yaml\ncases: [{op: relu, dtypes: int8, shapes: {input0: [2]}}]\n", "sub/left.yaml"
    )
    file = plan_file("""
        include: [sub/left.yaml, sub/base.yaml]
        seed: 2
        cases: [{op: relu, dtypes: int8, shapes: {input0: [3]}}]
    """)
    options = resolve(plan=file)
    assert (options.backend, options.seed) == ("gpu", 2)
    assert [case.shapes["input0"] for case in load(options)] == [(1,), (2,), (3,)]


def test_the_suite_takes_what_each_operator_can() -> None:
    found = cases(suite="builtin", flags=Flags(dtypes=(("int8",),)))
    assert {(case.op, case.dtypes) for case in found} == {("relu", ("int8",))}
    with pytest.raises(UsageError, match="no case of suite builtin is left"):
        cases(suite="builtin", flags=Flags(dtypes=(("int9",),)))


def test_an_operator_may_narrow_a_plan(plan_file: Write) -> None:
    file = plan_file("cases: [{op: relu}, {op: add}]\n")
    assert {case.op for case in cases(plan=file, flags=Flags(ops=("add",)))} == {"add"}
    with pytest.raises(UnknownName, match=r"operator of the plan 'adx': did you mean add\?"):
        cases(plan=file, flags=Flags(ops=("adx",)))


def test_impossible_flags_are_errors() -> None:
    add = ("add",)
    with pytest.raises(ShapeError, match="do not broadcast"):
        cases(flags=Flags(ops=add, shapes={"input0": [(2,)], "input1": [(3,)]}))
    with pytest.raises(AttributeMismatch, match="it takes float"):
        cases(flags=Flags(ops=add, attributes={"alpha": ["x"]}))
    with pytest.raises(UsageError, match="does not take int8"):
        cases(flags=Flags(ops=add, dtypes=(("int8",),)))
    with pytest.raises(UsageError, match="nothing to run"):
        resolve()
    with pytest.raises(UsageError, match="write i/n"):
        resolve(suite="builtin", shard="3/2")


def test_filters_keep_what_they_name() -> None:
    def kept(*filters: str) -> set[tuple[str, str]]:
        return {(case.op, case.dtypes[0]) for case in cases(suite="builtin", filters=filters)}

    assert kept("relu", "dtype=float*") == {("relu", "float16"), ("relu", "float32")}
    assert kept("!activation", "!dtype=int32") == {("add", "float16"), ("add", "float32")}
    assert kept("tag=differentiable", "DTYPE=int8".lower()) == {("relu", "int8")}
    assert kept("op=relu,add", "note=0-d") == {("relu", dtype) for dtype in ("float16", "float32", "int8")}
    [case] = cases(suite="builtin", filters=[f"id={cases(suite='builtin')[4].id}"])
    assert case.id == cases(suite="builtin")[4].id


def test_a_filter_that_matches_nothing_lists_near_misses() -> None:
    with pytest.raises(UsageError, match=r"--filter op=rel: did you mean relu\?"):
        cases(suite="builtin", filters=["op=rel"])
    with pytest.raises(UsageError, match=r"--filter dtype=q: there are float16, float32, int32 and int8"):
        cases(suite="builtin", filters=["dtype=q"])
    with pytest.raises(UnknownName, match="key of --filter 'dtpye=q': 'dtpye': did you mean dtype"):
        cases(suite="builtin", filters=["dtpye=q"])


def test_shards_part_the_cases() -> None:
    everything = [case.id for case in cases(suite="builtin")]
    parts = [[case.id for case in cases(suite="builtin", shard=f"{i}/3")] for i in (1, 2, 3)]
    assert sorted(itertools.chain(*parts)) == sorted(everything)
    assert max(map(len, parts)) < len(everything)


def test_a_case_that_is_planned_twice_runs_once_unless_it_differs(plan_file: Write) -> None:
    assert len(cases(plan=plan_file("cases: [{op: relu}, {op: relu}]\n"))) == 6
    with pytest.raises(UsageError, match="planned twice"):
        cases(plan=plan_file("cases: [{op: relu}, {op: relu, rtol: 1}]\n"))


def test_expansion_is_lazy(plan_file: Write) -> None:
    seeds = ",".join(map(str, range(20_000)))
    file = plan_file(
        f"cases: [{{op: relu, dtypes: int8, shapes: {{input0: [2]}}, seed: [{seeds}]}}, {{op: nowhere}}]\n"
    )
    first = list(itertools.islice(load(resolve(plan=file)), 20_000))  # the mistake comes after these
    assert len({case.id for case in first}) == 20_000


def test_only_an_unnarrowed_plan_is_complete(plan_file: Write) -> None:
    file = plan_file("cases: [{op: relu}, {op: add}]\n")
    assert resolve(plan=file).complete
    assert resolve(suite="builtin").complete
    assert not resolve(plan=file, filters=["relu"]).complete
    assert not resolve(plan=file, shard="1/2").complete
    assert not resolve(suite="builtin", flags=Flags(ops=("relu",))).complete
    assert not resolve(plan=file, flags=Flags(dtypes=(("int8",),))).complete
