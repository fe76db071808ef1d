"""Each command on input that is in order: what it writes, what it prints, its JSON, its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy
import pytest

from optest.core.comparator import compare
from torchstone import lowering
from torchstone.parity import demo as demo_module
from torchstone.parity.compilation import Compilation
from torchstone.parity.demo import Accuracy, DemoReport

Torchstone = Callable[..., Any]

TENSOR = {
    "type": "object",
    "required": ["name", "dtype", "shape"],
    "properties": {
        "name": {"type": "string"},
        "dtype": {"type": "string"},
        "shape": {"type": "array", "items": {"type": ["integer", "string"]}},
    },
}
COUNTS = {"type": "object", "additionalProperties": {"type": "integer"}}
COMPILATION = {
    "type": "object",
    "properties": {
        "graphs": COUNTS,
        "breaks": COUNTS,
        "deliberate_breaks": {"type": "integer"},
        "native_operators": {"type": "integer"},
        "native_calls": {"type": "integer"},
        "fallback_calls": {"type": "integer"},
        "fallbacks": COUNTS,
        "compile_s": {"type": "number"},
    },
    "additionalProperties": False,
    "minProperties": 8,
}


def check(value: Any, **properties: Any) -> None:
    """``value`` is an object with exactly these properties."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    jsonschema.validate(value, schema)


STRING, BOOLEAN, NUMBER, INTEGER = ({"type": kind} for kind in ("string", "boolean", "number", "integer"))
STRINGS = {"type": "array", "items": STRING}


# --- help ------------------------------------------------------------------------------


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from torchstone.cli.main import cli\n"
        "for command in ([], ['verify'], ['run'], ['export'], ['redirect', 'run']):\n"
        "    try:\n"
        "        cli.main([*command, '--help'])\n"
        "    except SystemExit as done:\n"
        "        assert done.code == 0\n"
        "print('loaded', *{name.partition('.')[0] for name in sys.modules})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "torchstone" in loaded
    assert loaded.isdisjoint({"torch", "jax", "jaxlib", "numpy", "rich"})


def test_every_command_has_json_and_a_sentence(torchstone: Torchstone) -> None:
    listed = torchstone("--help").stdout
    for command in ("demo", "doctor", "export", "diff", "run", "verify", "bisect", "ops", "explain"):
        assert f"\n  {command} " in listed
        text = torchstone(command, "--help").stdout
        assert "--json" in text
        assert text.startswith(f"Usage: torchstone {command}")
    assert "file.py:factory" in listed
    assert "Exit codes: 0 ok, 1 failures found, 2 usage, 3 environment, 130 interrupted" in listed


def test_module_and_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torchstone", "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("torchstone, version ")


# --- export and run --------------------------------------------------------------------


def test_export_reports_what_it_wrote(torchstone: Torchstone, models: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.stone"
    done = torchstone("export", f"{models}:small", "-o", path, "--stablehlo-version", "1.0.0", "--json")
    assert done.code == 0
    check(
        done.json,
        output={"const": str(path)},
        emit={"const": "artifact"},
        bytes={"const": path.stat().st_size},
        stablehlo_version={"const": "1.0.0"},
        weights={"const": 2},
        inputs={"type": "array", "items": TENSOR, "minItems": 1, "maxItems": 1},
        outputs={"type": "array", "items": TENSOR, "minItems": 1, "maxItems": 1},
    )
    assert done.json["inputs"][0]["shape"] == [4, 3]


def test_export_emits_text_bytecode_and_graph(torchstone: Torchstone, models: Path, tmp_path: Path) -> None:
    beginnings = {"mlir": b"module ", "bytecode": b"ML\xefR", "graph": b"class GraphModule"}
    for kind, beginning in beginnings.items():
        path = tmp_path / kind
        assert torchstone("export", f"{models}:small", "-o", path, "--emit", kind).code == 0
        assert path.read_bytes().startswith(beginning)
    assert b"stablehlo.dot_general" in (tmp_path / "mlir").read_bytes()
    assert b"torch.ops.aten" in (tmp_path / "graph").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(beginnings)


def test_export_emits_text_with_a_function_for_each_module(torchstone: Torchstone, tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text(
        "import torch\n\n\ndef make():\n"
        "    return torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(4, 3))), (torch.ones(2, 4),)\n"
    )
    done = torchstone("export", f"{model}:make", "-o", "-", "--emit", "mlir", "--functions")
    assert 'call @"0.0"' in done.stdout
    refused = torchstone("export", f"{model}:make", "-o", "-", "--emit", "graph", "--functions")
    assert "--functions is for --emit mlir" in refused.stderr


def test_export_puts_weights_inside(torchstone: Torchstone, models: Path) -> None:
    done = torchstone("export", f"{models}:small", "-o", "-", "--emit", "mlir", "--weights", "constants")
    assert done.code == 0
    (main,) = [line for line in done.stdout.splitlines() if "@main" in line]
    assert main.count("%arg") == 1


def test_run_reads_inputs_and_writes_outputs(torchstone: Torchstone, artifact: Path, tmp_path: Path) -> None:
    numpy.save(tmp_path / "x.npy", numpy.zeros((4, 3), numpy.float32))
    done = torchstone(
        "run", artifact, "--input", tmp_path / "x.npy", "--output", tmp_path / "out.npz", "--json"
    )
    assert done.code == 0, done.stderr
    number = {"type": "number"}
    output = {**TENSOR, "properties": {**TENSOR["properties"], "min": number, "mean": number, "max": number}}
    check(
        done.json,
        artifact={"const": str(artifact)},
        first_call_s=NUMBER,
        outputs={"type": "array", "items": output, "minItems": 1, "maxItems": 1},
    )
    (name,) = numpy.load(tmp_path / "out.npz").files
    assert name == done.json["outputs"][0]["name"] == "output"
    written = numpy.load(tmp_path / "out.npz")[name]
    assert written.shape == (4, 2)
    assert (written == written[0]).all()  # zeros in: every row is the bias
    assert done.json["outputs"][0]["max"] == written.max()


def test_random_inputs_follow_the_seed(torchstone: Torchstone, artifact: Path) -> None:
    first, again, other = (
        torchstone("run", artifact, "--seed", seed, "--json").json["outputs"] for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_run_prints_a_table(torchstone: Torchstone, artifact: Path) -> None:
    done = torchstone("run", artifact)
    assert done.code == 0
    assert "float32" in done.stdout
    assert "[4, 2]" in done.stdout
    assert "first call, with compilation" in done.stdout


def test_run_in_a_process_of_its_own_needs_no_torch(artifact: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from torchstone.cli.main import main\n"
        f"sys.argv = ['torchstone', 'run', {str(artifact)!r}]\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


# --- verify, explain, ops --------------------------------------------------------------


def test_verify_as_json(torchstone: Torchstone) -> None:
    done = torchstone("verify", "mlp", "--json")
    assert done.code == 0, done.stdout
    check(
        done.json,
        model={"const": "mlp"},
        dtype={"const": "float32"},
        passed={"const": True},
        checks={"type": "array", "minItems": 8},
        errors={"const": {}},
        notes={"const": []},
        compilation=COMPILATION,
    )
    stages = [entry["stage"] for entry in done.json["checks"]]
    assert {stage: stages.count(stage) for stage in stages} == {"artifact": 1, "compiled": 1, "gradients": 6}
    assert done.json["compilation"]["graphs"] == {"inference": 1, "forward": 1, "backward": 1}
    assert done.json["compilation"]["breaks"] == {}


def test_verify_prints_counts_and_verdict(torchstone: Torchstone, models: Path) -> None:
    done = torchstone("verify", f"{models}:keywords", "--no-gradients")
    assert done.code == 0, done.stdout
    assert "graphs: 1, breaks: 0; operator calls compiled: 1, in eager: 0" in done.stdout
    assert done.stdout.endswith("\npassed\n")


def test_verify_fails_with_the_operator_that_is_missing(torchstone: Torchstone, models: Path) -> None:
    done = torchstone("verify", f"{models}:unsupported", "--no-gradients")
    assert done.code == 1
    assert "1 operator(s) in 1 call(s) cannot be lowered to StableHLO" in done.stdout
    assert "1 operator(s) of this inference graph would run in eager PyTorch" in done.stdout
    assert "torchstone_cli_tests.mystery.default (1×) at " in done.stdout
    assert done.stdout.endswith("\nfailed\n")


@pytest.mark.parametrize(("factory", "code"), [("small", 0), ("unsupported", 1)])
def test_explain(torchstone: Torchstone, models: Path, factory: str, code: int) -> None:
    done = torchstone("explain", f"{models}:{factory}", "--json")
    assert done.code == code
    check(
        done.json,
        model=STRING,
        compiles={"const": code == 0},
        native=COUNTS,
        unsupported={"type": "array", "minItems": code, "maxItems": code},
        error={"type": "null"},
        passes={"const": []},
    )
    text = torchstone("explain", f"{models}:{factory}")
    assert text.code == code
    assert ("everything compiles" in text.stdout) == (code == 0)


def test_explain_passes(torchstone: Torchstone, models: Path) -> None:
    done = torchstone("explain", "--passes", f"{models}:small", "--json")
    assert done.code == 0
    steps = {step["name"]: step for step in done.json["passes"]}
    assert list(steps) == PASSES
    for step in steps.values():
        check(
            step,
            name=STRING,
            doc={"type": "string", "minLength": 10},
            needs=STRINGS,
            guarantees={**STRINGS, "minItems": 1},
            seconds={"type": "number", "minimum": 0},
            graph={"type": ["string", "null"]},
        )
    assert [name for name, step in steps.items() if step["graph"] is not None] == ["capture", "lower"]
    assert "torch.ops.aten." in steps["capture"]["graph"]
    assert "func.func public @main" in steps["lower"]["graph"]
    text = torchstone("explain", "--passes", f"{models}:small").stdout
    assert "\nsurvey (" in text
    assert "\n  needs: checks, lowerable\n  guarantees: stablehlo\nmodule @" in text
    assert text.count("  the graph stays as it is\n") == len(PASSES) - 2


def test_explain_passes_as_far_as_they_go(torchstone: Torchstone, models: Path) -> None:
    done = torchstone("explain", "--passes", f"{models}:unsupported", "--json")
    assert done.code == 1
    assert [step["name"] for step in done.json["passes"]] == PASSES[: PASSES.index("require-lowerings")]
    assert [node["overload"] for node in done.json["unsupported"]] == ["torchstone_cli_tests.mystery.default"]


PASSES = [
    "capture",
    "check-aliasing",
    "check-arguments",
    "decompose",
    "bound-sizes",
    "survey",
    "require-lowerings",
    "read-signature",
    "place",
    "add-checks",
    "lower",
]


def test_ops_lists_the_registry(torchstone: Torchstone) -> None:
    done = torchstone("ops", "--json")
    assert done.code == 0
    operator = {
        "type": "object",
        "required": ["overload", "family", "dtypes", "gaps", "documentation"],
        "properties": {"dtypes": {**STRINGS, "minItems": 1}, "gaps": {"type": "object"}},
    }
    named = {"type": "object", "required": ["operator", "family", "documentation"]}
    check(
        done.json,
        operators={"type": "array", "items": operator, "minItems": 200},
        higher_order={"type": "array", "items": named},
        unavailable={"const": {}},
    )
    higher_order = [entry["operator"] for entry in done.json["higher_order"]]
    assert higher_order == ["cond", "map_impl", "scan", "while_loop"]
    by_name = {entry["overload"]: entry for entry in done.json["operators"]}
    assert len(by_name) == len(done.json["operators"])
    assert by_name["aten.addmm.default"]["family"] == "matmul"
    table = torchstone("ops").stdout
    assert f"{len(by_name)} overloads and {len(higher_order)} higher-order operators" in table
    assert "aten.addmm.default" in table
    assert "while_loop" in table


def test_ops_of_an_operator_prints_its_record(torchstone: Torchstone) -> None:
    found = torchstone("ops", "aten.index_put.default", "--json").json["operators"]
    assert [one["operator"] for one in found] == ["aten.index_put.default"]
    assert found[0]["indices"]["out_of_range"] == "nothing is written"
    text = torchstone("ops", "aten.gelu").stdout
    assert "PyTorch's, self: gelu_backward(grad, self, approximate)" in text
    assert "replaced by its functional form" in text  # aten.gelu.out


def test_ops_of_an_operator_that_is_not_there(torchstone: Torchstone) -> None:
    done = torchstone("ops", "aten.sinhh.default")
    assert done.code == 2
    assert "PyTorch has no operator aten.sinhh.default" in done.stderr
    assert "write one as in aten.add.Tensor; near it: aten.sinh.default" in done.stderr


def test_ops_of_a_model_says_what_is_missing(torchstone: Torchstone, models: Path) -> None:
    done = torchstone("ops", f"{models}:unsupported")
    assert done.code == 1
    assert "torchstone_cli_tests.mystery.default" in done.stdout
    assert "1 operators lower, 1 are missing" in done.stdout
    assert torchstone("ops", f"{models}:small").code == 0


# --- doctor and demo -------------------------------------------------------------------


def test_doctor(torchstone: Torchstone) -> None:
    done = torchstone("doctor", "--json")
    assert done.code == 0, done.stdout
    cache = {"required": ["directory", "enabled", "problem", "programs", "bytes", "max_bytes"]}
    check(
        done.json,
        versions={"required": ["python", "torchstone", "torch", "jax", "jaxlib"]},
        platforms={"type": "array", "minItems": 1},
        settings={"required": ["TORCHSTONE_DEVICE", "TORCHSTONE_CACHE_DIR"]},
        cache=cache,
        backend_registered={"const": True},
        backend_works={"const": True},
        tested_pytorch={"type": "array", "minItems": 2},
        unavailable={"const": {}},
        problems={"const": []},
    )
    assert done.json["platforms"][0]["devices"] == ["cpu:0"]
    assert done.json["cache"]["directory"] == os.environ["TORCHSTONE_CACHE_DIR"]


def test_doctor_of_the_backend(torchstone: Torchstone) -> None:
    done = torchstone("doctor", "--backend")
    assert done.code == 0
    assert done.stdout == "compile backend: registered, works\nall in order\n"


def a_report(**changes: Any) -> DemoReport:
    same = compare(numpy.ones(3, numpy.float32), numpy.ones(3, numpy.float32))
    values: dict[str, Any] = {
        "accuracy": Accuracy(0.99, 0.985, 0.985),
        "differences": {"compiled": same, "artifact": same},
        "compilation": Compilation(),
        "first_call_s": 2.0,
        "step_s": 0.003,
        "eager_step_s": 0.004,
        "speed": 1.3,
        "artifact_bytes": 40_000,
    }
    return DemoReport(**{**values, **changes})


def test_demo_prints_its_report(torchstone: Torchstone, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo itself is run by the test of ``examples/train_digits.py``."""
    monkeypatch.setattr(demo_module, "run_demo", lambda progress: a_report())
    done = torchstone("demo")
    assert done.code == 0
    for piece in (
        "98.50%",
        "(0 ULP)",
        "operators lowered",
        "graph breaks",
        "2.00 s",
        "1.30×",
        "39 KiB",
        "passed",
    ):
        assert piece in done.stdout
    check(
        torchstone("demo", "--json").json,
        passed={"const": True},
        failures=STRINGS,
        accuracy={"required": ["eager", "compiled", "artifact"]},
        differences={"required": ["compiled", "artifact"]},
        compilation=COMPILATION,
        first_call_s=NUMBER,
        step_s=NUMBER,
        eager_step_s=NUMBER,
        speed=NUMBER,
        artifact_bytes=INTEGER,
    )


def test_a_failed_demo_exits_with_1(torchstone: Torchstone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_module, "run_demo", lambda progress: a_report(failures=["graph break: x"]))
    done = torchstone("demo")
    assert done.code == 1
    assert "graph break: x" in done.stdout
    assert "passed" not in done.stdout
    assert torchstone("demo", "--json").code == 1


def test_run_isolated(torchstone: Any, artifact: Path) -> None:
    here, apart = (torchstone("run", artifact, *more, "--json") for more in ((), ("--isolated",)))
    assert apart.json["outputs"] == here.json["outputs"]
    stopped = torchstone("run", artifact, "--isolated", "--timeout", "0.1")
    assert stopped.code == 1
    assert "in a fresh process took longer than 0.1 s" in stopped.stderr


@pytest.mark.parametrize("command", ["ops", "doctor"])
def test_what_this_pytorch_does_not_allow_is_listed(
    torchstone: Torchstone, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    registry = lowering.load()
    monkeypatch.setitem(registry.lost_families, "aten.gone.default", "PyTorch 9.9 has no such overload")
    text = torchstone(command).stdout
    assert "not available with this PyTorch" in text
    assert "aten.gone.default" in text
