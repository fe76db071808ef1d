"""Mistakes of users: each gives one clear error of ``torchstone.errors``, and changes nothing.

Tested elsewhere: files that are not artifacts (``test_artifact``), plugins and devices
(``runtime``), the command line (``cli/test_errors``).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import torchstone
from optest import files
from torchstone.errors import (
    ArtifactError,
    CaptureError,
    ConfigError,
    DeviceNotFound,
    InputMismatch,
    InvalidValue,
    LoweringDefinitionError,
    PassError,
    RedirectTargetError,
    ShardingError,
    TorchstoneError,
    TrainingError,
    UnsupportedDtype,
    UnsupportedLayout,
    UnsupportedOperators,
)


def double(x: Any) -> Any:
    return x * 2


def nested() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


def quantized() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)


class TestExport:
    @pytest.mark.parametrize(
        ("example", "error", "message"),
        [
            (
                lambda: torch.eye(3).to_sparse(),
                UnsupportedLayout,
                "example input 0 is a tensor of layout torch.sparse_coo; a program takes plain strided",
            ),
            (
                lambda: torch.eye(3).to_sparse_csr(),
                UnsupportedLayout,
                "example input 0 is a tensor of layout torch.sparse_csr",
            ),
            (
                lambda: [torch.ones(2), nested()],
                UnsupportedLayout,
                "example input 0 is a nested tensor; a prog",
            ),
            (
                quantized,
                UnsupportedDtype,
                "example input 0 is a quantized tensor (torch.qint8), which torch.export cannot trace",
            ),
        ],
        ids=["sparse", "csr", "nested in a list", "quantized"],
    )
    def test_example_input(
        self, example: Callable[[], Any], error: type[TorchstoneError], message: str
    ) -> None:
        with pytest.raises(error, match=f"^{re.escape(message)}"):
            torchstone.export(double, (example(),))

    def test_keyword_example_input(self) -> None:
        with pytest.raises(UnsupportedLayout, match=r"^example input 'x' is a tensor of layout "):
            torchstone.export(double, (), {"x": torch.eye(3).to_sparse()})

    def test_dtype_of_a_weight(self) -> None:
        model = torch.nn.ReLU()
        model.register_buffer("scale", torch.zeros(3, dtype=torch.complex32))
        with pytest.raises(UnsupportedDtype, match=r"^dtype complex32 is not supported\n  next: convert"):
            torchstone.export(model, (torch.ones(3),))

    def test_input_whose_shape_changes_in_place(self) -> None:
        def model(x: torch.Tensor) -> torch.Tensor:
            return x.squeeze_(0)

        place = r"^aten\.squeeze_\.dim at .*test_bad_input\.py:\d+ "
        message = place + r"changes the shape of input args_0 in place\n  next: change the shape of a view"
        with pytest.raises(CaptureError, match=message):
            torchstone.export(model, (torch.ones(1, 3),))

    def test_input_that_a_result_resizes(self) -> None:
        message = (
            r"^the model changes the shape of input args_1 in place, as out= does where it resizes\n  next: "
        )
        with pytest.raises(CaptureError, match=message):
            torchstone.export(lambda x, y: torch.sin(x, out=y), (torch.ones(3), torch.ones(0)))

    @pytest.mark.parametrize("rows", [0, 4])
    @pytest.mark.parametrize("sizes", [None, ({0: torch.export.Dim.AUTO},)])
    @pytest.mark.parametrize("resized", ["view", "base"])
    def test_memory_of_several_tensors_that_a_result_resizes(
        self, rows: int, sizes: Any, resized: str
    ) -> None:
        def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            base = x * 2
            view = base.unsqueeze(0)
            torch.sin(x.unsqueeze(1), out=base if resized == "base" else view)
            return base, view

        message = (
            r"^aten\.sin\.out at .*test_bad_input\.py:\d+ resizes its out= tensor, which shares memory with"
            r" another one\n  next: give out= a tensor that has the shape of the result$"
        )
        with pytest.raises(CaptureError, match=message):
            torchstone.export(model, (torch.ones(rows),), dynamic_shapes=sizes)

    @pytest.mark.parametrize(
        "model",
        [
            lambda x: x.sub_(1).as_strided((2, 2), (10, 1)),
            lambda x: x.transpose(0, 2).mul_(2).as_strided((2, 2), (1, 5)),
            lambda x: (x.as_strided((2, 2), (10, 1)), x.mul_(2))[0] + 1,
            lambda x: (x.as_strided((2, 2), (10, 1)).t(), x.mul_(2))[0],
        ],
        ids=["after", "through a view", "before", "view of a view before"],
    )
    @pytest.mark.parametrize("sizes", [None, ({0: torch.export.Dim.AUTO},)])
    def test_strided_reads_of_written_memory_with_gaps(self, model: Any, sizes: Any) -> None:
        x = torch.randn(6, 2, 5)[..., 1:3]
        message = (
            r"^aten\.(as_strided|t)\.default at .*test_bad_input\.py:\d+ reads by strides what has gaps in"
            r" memory, and the program has written into it\n  next: write into a contiguous copy of it, or"
        )
        with pytest.raises(CaptureError, match=message):
            torchstone.export(model, (x,), dynamic_shapes=sizes)

    @pytest.mark.parametrize(
        "model",
        [
            lambda x: (x[0].mul_(2), x.as_strided((2, 2), (10, 1)))[1],
            lambda x: (x.as_strided((2, 2), (10, 1)).sub_(1), x + 0)[1],
            lambda x: (x.as_strided((2, 2), (10, 1)) + 1, x.mul_(2))[0],
            lambda x: (x.mul_(2), x.clone(memory_format=torch.contiguous_format).as_strided((2,), (5,)))[1],
        ],
        ids=["a part is written", "through the view", "the read is before", "of a copy"],
    )
    def test_other_strided_reads_of_memory_with_gaps(self, model: Any) -> None:
        x, other = (torch.arange(60.0).reshape(6, 2, 5)[..., 1:3] for _ in range(2))
        program = torchstone.export(model, (torch.arange(60.0).reshape(6, 2, 5)[..., 1:3],))
        torch.testing.assert_close(program(x), model(other))
        torch.testing.assert_close(x, other)

    def test_strides_of_memory_with_gaps(self) -> None:
        def model(x: torch.Tensor) -> torch.Tensor:
            return x + x.stride(0)

        x = torch.zeros(4, 3, 7)[..., 1::2]
        assert torchstone.export(model, (x,))(x).unique().item() == 21
        sizes = ({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO},)
        message = r"^args_0\.stride\(\) at .*test_bad_input\.py:\d+ is a number that a program does not know"
        with pytest.raises(CaptureError, match=message):
            torchstone.export(model, (x,), dynamic_shapes=sizes)
        dense = torchstone.export(model, (x.contiguous(),), dynamic_shapes=sizes)
        assert dense(torch.zeros(2, 5, 4)).unique().item() == 20

    def test_program_without_a_functional_form(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*_: Any) -> None:
            raise AssertionError("mutations are not what they were")

        monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", broken)
        message = (
            r"^PyTorch finds no functional form of this program: AssertionError: "
            r"mutations are not what they were\n  next: run it in eager"
        )
        with pytest.raises(CaptureError, match=message):
            torchstone.export(double, (torch.ones(3),))

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            (
                {"kwargs": [1]},
                CaptureError,
                "keyword arguments must be a mapping from names to values, not a list",
            ),
            ({"passes": 3}, PassError, "passes is an int, not a list of passes"),
            ({"stablehlo_version": 3}, ConfigError, "3 is not a StableHLO version"),
        ],
    )
    def test_options_of_a_wrong_type(
        self, options: dict[str, Any], error: type[TorchstoneError], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            torchstone.export(double, (torch.ones(2),), **options)

    def test_dynamic_shapes_that_do_not_fit(self) -> None:
        with pytest.raises(CaptureError, match=r"^torch\.export cannot capture double: "):
            torchstone.export(double, (torch.ones(3),), dynamic_shapes=({3: torch.export.Dim("n")},))


def first_rows(x: torch.Tensor) -> torch.Tensor:
    return x[:2] if x.shape[0] > 3 else x


def three_rows(x: torch.Tensor) -> torch.Tensor:
    return x + torch.ones(3, 1)


ROWS = torch.export.Dim("rows", min=2, max=64)


@pytest.mark.parametrize(
    ("model", "examples", "sizes", "told"),
    [
        (double, (4,), lambda: ({0: torch.export.Dim("n", min=5, max=8)},), r"\b4\b.*\b5\b"),
        (
            torch.add,
            (4, 4),
            lambda: ({0: torch.export.Dim("n")}, {0: torch.export.Dim("m")}),
            r"\bm\b.*\bn\b|\bn\b.*\bm\b",
        ),
        (
            torch.add,
            (4, 4),
            lambda: ({0: torch.export.Dim("n", max=5)}, {0: torch.export.Dim("m", min=4)}),
            r"\bm\b.*\bn\b|\bn\b.*\bm\b",
        ),
        (first_rows, (5,), lambda: ({0: ROWS},), r"rows = Dim\('rows', min=4, max=64\)"),
        (three_rows, (3,), lambda: ({0: ROWS},), r"^three_rows .*rows == 3 \(rows is input 0"),
    ],
    ids=[
        "example outside",
        "equal sizes",
        "equal sizes of other ranges",
        "a branch",
        "a constant",
    ],
)
def test_sizes_that_contradict(
    model: Callable[..., Any], examples: tuple[int, ...], sizes: Callable[[], Any], told: str
) -> None:
    """There is one error, with the user's names and the sizes that the model accepts."""
    with pytest.raises(CaptureError, match=re.compile(told, re.DOTALL)) as raised:
        torchstone.export(model, tuple(torch.ones(n, 2) for n in examples), dynamic_shapes=sizes())
    assert len(str(raised.value)) < 3000
    assert "sympy" not in str(raised.value).lower()


def test_a_boolean_of_a_tensor() -> None:
    with pytest.raises(UnsupportedOperators, match=r"_local_scalar_dense.*test_bad_input\.py:\d+") as raised:
        torchstone.export(lambda x, n: x * (n > 0).item(), (torch.ones(4), torch.tensor(2)))
    assert "compute with the tensor itself: index_select, torch.where" in str(raised.value)


@pytest.mark.parametrize(
    "function", [lambda x: x + x.sum().item(), lambda x: x * x[0].tolist()], ids=["item", "tolist"]
)
def test_a_float_of_a_tensor(function: Callable[..., Any]) -> None:
    program = torchstone.export(function, (torch.ones(4),))
    x = torch.randn(4)
    torch.testing.assert_close(program(x), function(x))


@pytest.mark.parametrize(
    "function",
    [lambda x, n: x + n.item(), lambda x, n: n.item(), lambda x, n: x * n.tolist()],
    ids=["add", "result", "tolist"],
)
def test_an_integer_of_a_tensor(function: Callable[..., Any]) -> None:
    program = torchstone.export(function, (torch.ones(4), torch.tensor(2)))
    for value in (2, -7, 0):
        found, expected = (
            program(torch.ones(4), torch.tensor(value)),
            function(torch.ones(4), torch.tensor(value)),
        )
        assert type(found) is type(expected)
        torch.testing.assert_close(found, expected)


def net() -> torch.nn.Module:
    return torch.nn.Linear(4, 3)


def sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD(net().parameters(), 0.1)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: torchstone.Program(3), ArtifactError, "an int is not an artifact"),  # type: ignore[arg-type]
        (
            lambda: torchstone.Mesh(3),
            ShardingError,
            "the axes of the mesh are an int",
        ),  # type: ignore[arg-type]
        (lambda: torchstone.lowers(), LoweringDefinitionError, "lowers() names no overload"),
        (
            lambda: torchstone.lowers(torch.ops.aten.sin),  # type: ignore[arg-type]
            LoweringDefinitionError,
            "is not an overload of an operator\n  next: name one, as in torch.ops.aten.sin.default",
        ),
        (
            lambda: torch.compile(double, backend="torchstone", mode="fast")(torch.ones(2)),
            torch._dynamo.exc.BackendCompilerFailed,
            "mode='fast' is unknown\n  next: modes: default, reduce-overhead,",
        ),
        (
            lambda: torchstone.redirected(devices="two").__enter__(),  # type: ignore[arg-type]
            RedirectTargetError,
            "devices='two' cannot be offered",
        ),
        (
            lambda: torchstone.compile_step(net(), torch.nn.MSELoss(), sgd()),  # type: ignore[arg-type]
            TrainingError,
            "is a MSELoss, not a torch.optim.Optimizer\n  next: the order is (model, optimizer, loss_fn)",
        ),
        (
            lambda: torchstone.compile_step(None, sgd(), torch.nn.MSELoss()),  # type: ignore[arg-type]
            TrainingError,
            "model is None, not an nn.Module",
        ),
        (
            lambda: torchstone.export_step(net(), sgd(), 3, ()),  # type: ignore[arg-type]
            TrainingError,
            "loss_fn is an int, not a function",
        ),
        (
            lambda: torchstone.compile_step(net(), sgd(), torch.nn.MSELoss(), scaler=True),  # type: ignore[arg-type]
            TrainingError,
            "scaler is a bool, not a torch.amp.GradScaler\n  next: give one, or None",
        ),
        (
            lambda: torchstone.compile_step(net(), sgd(), torch.nn.MSELoss(), buckets=8),  # type: ignore[arg-type]
            TrainingError,
            "buckets=8 are not numbers of rows",
        ),
    ],
)
def test_arguments_of_a_wrong_type(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_a_size_without_a_bound() -> None:
    told = r"how large u\d may become: call torch\._check\(number <= …\)"
    with pytest.raises(UnsupportedOperators, match=told):
        torchstone.export(lambda x, n: x[: n.item()], (torch.ones(4), torch.tensor(2)))


def bounded(use: Callable[..., Any], low: int = 0) -> Callable[..., Any]:
    """Return a function that calls ``use(x, n)``, where ``n`` comes from a tensor and is within bounds."""

    def function(x: torch.Tensor, n: torch.Tensor) -> Any:
        number = n.item()
        torch._check(number >= low)
        torch._check(number <= 3)
        return use(x, number)

    return function


UNKNOWN: dict[str, Callable[..., Any]] = {
    "a slice": bounded(lambda x, n: x[:n]),
    "a row": bounded(lambda x, n: x[n]),
    "a new tensor": bounded(lambda x, n: torch.full((n, 2), 1.0) @ torch.ones(2, 3)),
    "a range": bounded(lambda x, n: torch.arange(n)),
    "an expansion": bounded(lambda x, n: x[:1].expand(n), low=2),
    "parts": bounded(lambda x, n: x.split([n, 4 - n])),
    "a factor": bounded(lambda x, n: x * n, low=-3),
    "one bound": lambda x, n: (torch._check(n.item() >= 0), x + 1)[1],
    "the other bound": lambda x, n: (torch._check(n.item() < 9, lambda: "too large"), x + 1)[1],
    "a float": lambda x, n: (torch._check(x.sum().item() > 0), x + 1)[1],
    "a mask's size": lambda x, n: (lambda y: (torch._check(y.shape[0] <= 4), y.sum())[1])(x[x > 0]),
    "as many as are not zero": lambda x, n: torch.zeros(x.nonzero().shape[0]),
}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", UNKNOWN)
def test_bounds_of_numbers_that_only_a_call_knows(name: str, dynamic: bool) -> None:
    """``torch._check`` turns them into symbols with bounds, some of which are infinite."""
    shapes = ({0: torch.export.Dim.AUTO}, None) if dynamic else None
    given = torch.ones(4), torch.tensor(2)
    program = torchstone.export(UNKNOWN[name], given, dynamic_shapes=shapes)
    for value in (2, 3):
        given = torch.ones(4), torch.tensor(value)
        torch.testing.assert_close(program(*given), UNKNOWN[name](*given))
    if name == "a float":
        with pytest.raises(InvalidValue, match=r"> 0\.0, where \w+ comes from aten\._local_scalar_dense"):
            program(-torch.ones(4), torch.tensor(2))
    elif "bound" not in name and "mask" not in name and "zero" not in name:
        with pytest.raises(InvalidValue, match=r"u0 <= 3, where u0 comes from aten\._local_scalar_dense"):
            program(torch.ones(4), torch.tensor(4))


def test_a_bound_on_a_size_is_checked() -> None:
    program = torchstone.export(
        lambda x: (torch._check(x.shape[0] > 2), x + 1)[1],
        (torch.ones(4),),
        dynamic_shapes=({0: torch.export.Dim("n", min=3)},),
    )
    assert program(torch.ones(3)).tolist() == [2, 2, 2]
    with pytest.raises(TorchstoneError):
        program(torch.ones(2))


class Counting(torch.nn.Module):
    """Counts its calls, draws random numbers, and writes into its second input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y.add_(1)
        return torch.nn.functional.dropout(x, 0.5, True)


class TestCalls:
    """A call that fails changes no buffer, no input, and not the state of the random generator."""

    @pytest.fixture
    def program(self) -> Any:
        return torchstone.export(Counting(), (torch.ones(4), torch.ones(2)))

    @pytest.mark.parametrize(
        ("x", "y", "error", "message"),
        [
            (torch.ones(5), torch.ones(2), InputMismatch, "input 0 has shape (5,); expected [4]"),
            (torch.ones(1, 4), torch.ones(2), InputMismatch, "input 0 has 2 dimensions; expected 1: [4]"),
            (torch.ones(4), torch.ones(3), InputMismatch, "input 1 has shape (3,); expected [2]"),
            (
                torch.ones(4, dtype=torch.float64),
                torch.ones(2),
                InputMismatch,
                "argument 1 (input 0) must be float32[4], found float64[4]\n  next: convert the input",
            ),
            (
                torch.ones(4),
                torch.ones(2, dtype=torch.int32),
                InputMismatch,
                "argument 2 (input 1) must be float32[2], found int32[2]",
            ),
            (
                torch.ones(4, dtype=torch.complex32),
                torch.ones(2),
                UnsupportedDtype,
                "dtype complex32 is not supported\n  next: convert to complex64",
            ),
            (
                torch.ones(4).to_sparse(),
                torch.ones(2),
                UnsupportedLayout,
                "a tensor of layout torch.sparse_coo is not a plain strided tensor\n  next: call .to_dense()",
            ),
            (
                torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
                torch.ones(2),
                UnsupportedLayout,
                "input 0 is a nested tensor; expected a plain float32 tensor\n  next: pad it",
            ),
            ([1.0], torch.ones(2), InputMismatch, "input 0 is a list; expected a float32 tensor"),
            (
                torch.ones(4),
                numpy.frombuffer(bytes(8), numpy.float32),
                InputMismatch,
                "input 1 is a read-only ndarray, and the model mutates it\n  next: pass a torch tensor",
            ),
        ],
        ids=[
            "size",
            "rank",
            "size of the mutated one",
            "dtype",
            "dtype of the mutated one",
            "complex32",
            "sparse",
            "nested",
            "list",
            "read-only",
        ],
    )
    def test_argument(self, program: Any, x: Any, y: Any, error: type[TorchstoneError], message: str) -> None:
        generator, before = torch.get_rng_state(), y.tolist()
        with pytest.raises(error, match=f"^{re.escape(message)}"):
            program(x, y)
        assert program.state()["calls"] == 0
        assert torch.equal(torch.get_rng_state(), generator)
        assert y.tolist() == before

    def test_the_same_call_with_what_fits(self) -> None:
        program = torchstone.export(Counting(), (torch.ones(4), torch.ones(2)))
        generator, y = torch.get_rng_state(), torch.ones(2)
        program(torch.ones(4), y)
        assert program.state()["calls"] == 1
        assert y.tolist() == [2, 2]
        assert not torch.equal(torch.get_rng_state(), generator)


class TestPlaces:
    def test_unknown_device(self) -> None:
        program = torchstone.export(double, (torch.ones(3),), device="abacus")
        with pytest.raises(DeviceNotFound, match=r"^there is no platform 'abacus'(?s:.*)\n  next: install"):
            program(torch.ones(3))

    def test_unknown_engine(self) -> None:
        program = torchstone.export(double, (torch.ones(3),), engine="steam")
        with pytest.raises(ConfigError, match=r"^unknown engine 'steam'\n  next: engines: pjrt, reference"):
            program(torch.ones(3))


def errno_text(code: int) -> str:
    return {errno.ENOSPC: "No space left on device", errno.EROFS: "Read-only file system"}[code]


def refuse(code: int) -> Callable[..., Any]:
    def refused(path: Any, *_: Any) -> Any:
        raise OSError(code, errno_text(code), str(path))

    return refused


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS], ids=errno_text)
@pytest.mark.parametrize("step", ["open", "fsync", "replace"])
def test_saving_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, step: str
) -> None:
    """Whichever step fails, the old file stays unchanged and no other file is left beside it."""
    program = torchstone.export(double, (torch.ones(3),))
    path = program.save(tmp_path / "model.stone")
    before = path.read_bytes()
    if step == "open":
        monkeypatch.setattr(files, "open", refuse(code), raising=False)
    else:
        monkeypatch.setattr(files.os, step, refuse(code))
    message = f"^cannot write the artifact {re.escape(str(path))}: {errno_text(code)}"
    with pytest.raises(ArtifactError, match=message):
        program.save(path, stablehlo_version="minimum")
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
