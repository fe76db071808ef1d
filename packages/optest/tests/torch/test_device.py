"""``torch:DEVICE`` on devices other than the CPU, and on devices that are missing.

The tests need no accelerator: a PrivateUse1 device that computes on the CPU stands in for one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from optest.backends import backend_manager
from optest.core.case import BackendTarget, TestCase
from optest.errors import BackendError, MissingExtra
from optest.operators import operator_registry
from optest.operators.descriptor import OperatorDescriptor
from optest.torch.device import GAPS, TorchDevice
from optest.torch.internals import need_torch

torch = pytest.importorskip("torch")

from optest.torch.calls import call_of, find_function, function_name  # noqa: E402


def test_every_built_in_operator_has_a_function() -> None:
    for descriptor in operator_registry:
        name = function_name(descriptor)
        assert name is not None, descriptor.name
        assert callable(find_function(name))


def case_of(descriptor: OperatorDescriptor) -> TestCase:
    return TestCase(descriptor, descriptor.dtypes[0], {"input0": (2,)}, {}, BackendTarget("torch"), None, 0)


def test_an_operator_without_a_function_is_unsupported() -> None:
    from dataclasses import replace

    relu = operator_registry.get("relu")
    for tags, message in (
        (frozenset[str](), "relu has no tag torch:NAME"),
        (frozenset({"torch:torch.no_such"}), "has no torch.no_such"),
    ):
        with pytest.raises(NotImplementedError, match=message):
            call_of(case_of(replace(relu, tags=tags)))


def test_users_operators_are_called_by_their_tag() -> None:
    from dataclasses import replace

    mine = replace(operator_registry.get("relu"), name="mine", tags=frozenset({"torch:torch.neg"}))
    [found] = call_of(case_of(mine))(torch.ones(2))
    assert found.tolist() == [-1, -1]


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(BackendError, match=r"has no device 'nosuch' here: .*nosuch"):
        TorchDevice("nosuch").setup()
    missing = "xpu" if not torch.xpu.is_available() else "mps"
    with pytest.raises(BackendError, match=f"has no device '{missing}' here"):
        TorchDevice(missing).setup()


def test_without_pytorch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"'torch:cpu' needs PyTorch.*\n.*optest\[torch\]"):
        need_torch("the driver 'torch:cpu'")


def test_selecting_imports_no_pytorch() -> None:
    code = (
        "import sys; from optest.backends import backend_manager as m; m.drivers(); "
        "m.select('torch:cuda:1'); m.select('torch-compile:inductor'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_and_gaps() -> None:
    assert backend_manager.select("torch:cpu").expectations == GAPS / "cpu.toml"
    assert backend_manager.select("torch:cuda:1").name == "torch:cuda:1"
    assert backend_manager.select("torch:cuda:1").expectations is None


SIMPLE = (
    *("add", "clamp", "cumsum", "embedding", "erf", "gather", "gelu", "mm", "max_pool2d"),
    *("mse_loss", "relu", "scatter_add", "softmax", "sort", "sum", "topk", "where"),
)
"""Operators of most categories; no kernel writes through views, because the stand-in has no views."""


@pytest.mark.conformance
def test_the_suite_on_a_stand_in_for_an_accelerator(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "OPTEST_PLUGINS": "standin_device",
        "OPTEST_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        "PYTHONWARNINGS": "ignore",
    }
    words = ["run", "--suite", "builtin", "--backend", "torch:standin", "--ledger", "none", "--json"]
    words += [word for name in SIMPLE for word in ("--op", name)]
    words += ["--report", f"json:{tmp_path / 'report.json'}"]
    done = subprocess.run(
        [sys.executable, "-c", "from optest.cli import main; main()", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    counts = {name: n for name, n in json.loads(done.stdout)["summary"]["counts"].items() if n}
    assert set(counts) == {"passed", "unsupported"}
    assert counts["passed"] > 1000
    cases = json.loads((tmp_path / "report.json").read_text())["cases"]
    declined = [one for one in cases if one["status"] == "unsupported"]
    assert {one["dtypes"][0] for one in declined} == {"complex128"}
    assert {one["reason"] for one in declined} == {"Cannot convert a standin Tensor to torch.complex128"}


def test_the_stand_in_refuses_tensors_of_the_cpu() -> None:
    """Otherwise, the runs above would show nothing."""
    code = (
        "import torch, standin_device; x = torch.ones(2).to('standin'); before = standin_device.CALLS[0]; "
        "assert (x + x).cpu().tolist() == [2, 2] and standin_device.CALLS[0] > before\n"
        "try: x + torch.ones(2)\n"
        "except RuntimeError as error: print(error)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout
