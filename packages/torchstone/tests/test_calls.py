"""What a program takes and gives back: constants, aliases, gradients, arrays, structured results, copies."""

from __future__ import annotations

import copy
import dataclasses
import enum
import json
import math
import pickle
import re
import subprocess
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.autograd import forward_ad
from torch.export import Dim

import torchstone
from torchstone.errors import ArtifactError, CaptureError, InputMismatch, TorchstoneError, UnsupportedLayout
from torchstone.overlap import overlap


class Number(enum.IntEnum):
    TWO = 2


def exported(function: Callable[..., Any], *args: Any) -> torchstone.Program:
    return torchstone.export(function, args)


def reloaded(program: torchstone.Program, folder: Path) -> torchstone.Program:
    return torchstone.load(program.save(folder / "program.stone"))


class TestConstants:
    """A Python value is part of a program: another type or other bits need another program."""

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize("stored", [False, True], ids=["exported", "loaded"])
    @pytest.mark.parametrize(
        ("constant", "same", "others"),
        [
            (2, [2, Number.TWO], [2.0, 3, "2", numpy.int64(2)]),
            (1, [1], [True, 1.0]),
            (True, [True], [1, 1.0, numpy.True_]),
            (0, [0], [False, 0.0, -0.0, ""]),
            (0.0, [0.0, numpy.float64(0.0)], [-0.0, 0, False]),
            (-0.0, [-0.0], [0.0, 0]),
            (math.nan, [math.nan, float("nan"), -math.nan], [0.0, math.inf, "nan"]),
            (math.inf, [math.inf], [-math.inf, math.nan]),
            ("mean", ["mean"], ["sum", b"mean"]),
            (2**70, [2**70], [2**70 + 1, float(2**70)]),
        ],
        ids=repr,
    )
    def test_type_and_bits_are_compared(
        self, constant: Any, same: list[Any], others: list[Any], stored: bool, tmp_path: Path
    ) -> None:
        x = torch.ones(2)
        program = exported(lambda x, nested: x + 1, x, {"deep": [(constant,)]})
        if stored:
            program = reloaded(program, tmp_path)
        for value in same:
            assert program(x, {"deep": [(value,)]}).tolist() == [2.0, 2.0]
        for value in others:
            message = rf"\['deep'\]\[0\]\[0\] is {re.escape(repr(value))}; the program was exported for "
            with pytest.raises(InputMismatch, match=message):
                program(x, {"deep": [(value,)]})

    def test_the_result_has_the_type_that_the_constant_gives_it(self) -> None:
        program = exported(lambda a, s: a * s, torch.arange(3), 2)
        with pytest.raises(
            InputMismatch, match=r"is 2\.0; the program was exported for 2\n  next: export again"
        ):
            program(torch.arange(3), 2.0)

    def test_example_of_a_subclass_is_stored_as_the_plain_value(self, tmp_path: Path) -> None:
        program = exported(lambda x, s: x * s, torch.ones(2), numpy.float64(3.0))
        assert program.signature.input_tree["tuple"][0]["tuple"][1] == {"const": 3.0}
        assert reloaded(program, tmp_path)(torch.ones(2), 3.0).tolist() == [3.0, 3.0]


def adds_one(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return y * 2


class TestAliasedInputs:
    """Inputs that share memory may not be mutated: a program treats its inputs as independent values."""

    @pytest.fixture(scope="class")
    def program(self) -> torchstone.Program:
        return exported(adds_one, torch.ones(4), torch.ones(4))

    @pytest.mark.parametrize(
        "inputs",
        [
            lambda base: (base[:4], base[:4]),
            lambda base: (base[1:5], base[:4]),
            lambda base: (base[:4], base[3:7]),
            lambda base: (base[::2][:4], base[2:6]),
            lambda base: (base[:4].numpy(), base[:4].numpy()),
            lambda base: (base[:4].numpy(), base[2:6]),
            lambda base: (base[2:6], base[:4].numpy()),
        ],
        ids=["same", "shifted", "one element", "strided", "numpy", "numpy and torch", "torch and numpy"],
    )
    def test_shared_memory_is_refused_before_anything_runs(self, program: Any, inputs: Any) -> None:
        base = torch.arange(8.0)
        x, y = inputs(base)
        with pytest.raises(
            InputMismatch, match="input 0 and input 1 share memory, and the model mutates input 0"
        ):
            program(x, y)
        assert base.tolist() == list(range(8))

    def test_parts_of_one_memory_that_share_no_element(self, program: Any) -> None:
        base = torch.arange(8.0)
        assert program(base[::2], base[1::2]).tolist() == [2.0, 6.0, 10.0, 14.0]
        assert base.tolist() == [1.0, 1.0, 3.0, 3.0, 5.0, 5.0, 7.0, 7.0]

    def test_aliases_that_nothing_mutates(self) -> None:
        x = torch.arange(4.0)
        assert exported(lambda a, b: a * b, x, x)(x, x).tolist() == [0.0, 1.0, 4.0, 9.0]

    def test_expanded_input(self, program: Any) -> None:
        with pytest.raises(InputMismatch, match="input 0 is expanded, and the model mutates it"):
            program(torch.ones(1).expand(4), torch.ones(4))

    @pytest.mark.parametrize("through", ["the input", "a view", "a part of a split"])
    @pytest.mark.parametrize("second", [slice(4), slice(1, 5)], ids=["same", "overlapping"])
    def test_aliased_examples(self, through: str, second: slice) -> None:
        def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            target = {"the input": x, "a view": x.view(2, 2)[0], "a part of a split": x.split(2)[1]}[through]
            target.add_(1)
            return y * 2

        base = torch.arange(8.0)
        with pytest.raises(
            CaptureError,
            match=r"example inputs \w+ and \w+ share memory, and aten\.add_\.Tensor at .*test_calls\.py:\d+",
        ):
            torchstone.export(forward, (base[:4], base[second]))

    def test_one_tensor_as_two_examples(self) -> None:
        """``torch.export`` would trace ``b - b`` here. It also confuses an input with an identical weight."""
        x, zero = torch.ones(2), torch.zeros(2)
        assert exported(lambda a, b: a - b, x, x)(x, zero).tolist() == [1.0, 1.0]
        layer = torch.nn.Linear(2, 2, bias=False)
        program = torchstone.export(lambda a, b: a[0] - b["c"], ([x], {"c": x}))
        assert program([x], {"c": zero}).tolist() == [1.0, 1.0]
        want = layer(torch.eye(2))
        torch.testing.assert_close(exported(layer, layer.weight)(torch.eye(2)), want.detach())

    def test_aliased_examples_that_nothing_mutates(self) -> None:
        def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (x + 1).add_(y)

        x = torch.ones(2)
        assert exported(forward, x, x)(x, torch.zeros(2)).tolist() == [2.0, 2.0]

    def test_memory_that_takes_long_to_tell_apart_counts_as_shared(self) -> None:
        memory = numpy.zeros(2**16, numpy.int8)
        one = numpy.lib.stride_tricks.as_strided(
            memory, (3,) * 9, (2, 7, 26, 101, 302, 1007, 2003, 3001, 5003)
        )
        assert overlap(one, memory[1:].reshape(-1, 3)[:5, 0])


class TestGradients:
    def test_mutated_leaf_that_requires_grad(self) -> None:
        program, leaf = exported(adds_one, torch.ones(2), torch.ones(2)), torch.ones(2, requires_grad=True)
        with pytest.raises(
            InputMismatch,
            match="input 0: a leaf Variable that requires grad is being used in an in-place operation",
        ):
            program(leaf, torch.ones(2))
        with pytest.raises(
            InputMismatch, match="input 0: a tensor that requires grad is being used in an in-place"
        ):
            program(leaf * 2, torch.ones(2))
        assert leaf.tolist() == [1.0, 1.0]
        with torch.no_grad():
            program(leaf, torch.ones(2))
        assert leaf.tolist() == [2.0, 2.0]

    def test_inputs_that_are_only_read_may_require_grad(self) -> None:
        program = exported(adds_one, torch.ones(2), torch.ones(2))
        result = program(torch.ones(2), torch.nn.Parameter(torch.ones(2)))
        assert type(result) is torch.Tensor
        assert not result.requires_grad

    def test_mutated_inference_tensor(self) -> None:
        program = exported(adds_one, torch.ones(2), torch.ones(2))
        with torch.inference_mode():
            x = torch.ones(2)
            program(x, torch.ones(2))
        with pytest.raises(InputMismatch, match="input 0 is an inference tensor, and the model mutates it"):
            program(x, torch.ones(2))
        assert x.tolist() == [2.0, 2.0]

    def test_tangents(self) -> None:
        program = exported(lambda x: x * 2, torch.ones(2))
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(torch.ones(2), torch.ones(2))
            with pytest.raises(InputMismatch, match=r"input 0 is a dual tensor; .* the tangent would be"):
                program(dual)
            assert program(forward_ad.unpack_dual(dual).primal).tolist() == [2.0, 2.0]
        with pytest.raises(InputMismatch, match="input 0 is a dual tensor"):
            torch.func.jvp(program, (torch.ones(2),), (torch.ones(2),))

    def test_other_transforms(self) -> None:
        program = exported(lambda x: x * 2, torch.ones(2))
        with pytest.raises(
            UnsupportedLayout, match=r"(?s)no memory that can be read.*outside of torch\.func"
        ):
            torch.func.vmap(program)(torch.ones(1, 2))


class Steps(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        x.add_(1)
        y.mul_(2)
        return self.steps * x


class TestState:
    def test_a_failed_call_changes_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """State is written last, after all results that may fail to convert."""
        program, x, y = exported(Steps(), torch.ones(2), torch.ones(2)), torch.ones(2), torch.ones(2)

        def fail(buffer: Any) -> Any:
            raise MemoryError

        with monkeypatch.context() as patched:
            patched.setattr("torchstone.program._to_torch", fail)
            with pytest.raises(MemoryError):
                program(x, y)
        with torch.inference_mode():
            frozen = torch.ones(2)
        with pytest.raises(InputMismatch):
            program(x, frozen)
        assert program.state()["steps"] == 0
        assert (x.tolist(), y.tolist()) == ([1.0, 1.0], [1.0, 1.0])
        program(x, y)
        assert program.state()["steps"] == 1

    @pytest.mark.parametrize("called", [False, True], ids=["before a call", "after a call"])
    def test_state_is_a_read_only_record(self, called: bool, tmp_path: Path) -> None:
        program = reloaded(exported(Steps(), torch.ones(2), torch.ones(2)), tmp_path)
        if called:
            program(torch.ones(2), torch.ones(2))
        state = program.state()
        with pytest.raises(ValueError, match="read-only"):
            state["steps"][...] = 7
        program(torch.ones(2), torch.ones(2))
        assert state["steps"] == int(called)
        assert program.state()["steps"] == int(called) + 1


class TestCopies:
    @pytest.mark.parametrize(
        "copied",
        [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))],
        ids=["copy", "deep", "pickle"],
    )
    @pytest.mark.parametrize("stored", [False, True], ids=["exported", "loaded"])
    def test_a_copy_goes_on_from_the_present_state(self, copied: Any, stored: bool, tmp_path: Path) -> None:
        program = exported(Steps(), torch.ones(2), torch.ones(2))
        if stored:
            program = reloaded(program, tmp_path)
        program(torch.ones(2), torch.ones(2))
        again = copied(program)
        assert again(torch.ones(2), torch.ones(2)).tolist() == [4.0, 4.0]
        assert (program.state()["steps"], again.state()["steps"]) == (1, 2)
        assert again.mlir_text() == torchstone.load(program.save(tmp_path / "other.stone")).mlir_text()


class Tagged(torch.Tensor):
    """A subclass that adds nothing to a tensor."""


class TestKindsOfInputs:
    @pytest.fixture(scope="class")
    def program(self) -> torchstone.Program:
        return exported(lambda x: x * 2, torch.ones(2))

    @pytest.mark.parametrize(
        ("value", "kind"),
        [
            (torch.ones(2), torch.Tensor),
            (torch.nn.Parameter(torch.ones(2)), torch.Tensor),
            (torch.ones(2).as_subclass(Tagged), torch.Tensor),
            (numpy.ones(2, numpy.float32), numpy.ndarray),
            (numpy.ones(2, numpy.float32).view(numpy.recarray), numpy.ndarray),
        ],
        ids=["tensor", "parameter", "subclass", "array", "subclass of array"],
    )
    def test_taken(self, program: Any, value: Any, kind: type) -> None:
        result = program(value)
        assert type(result) is kind
        assert result.tolist() == [2.0, 2.0]

    def test_numpy_scalar_for_a_0d_tensor(self) -> None:
        result = exported(lambda x: x * 2, torch.ones(()))(numpy.float32(3))
        assert isinstance(result, numpy.ndarray)
        assert result == 6

    @pytest.mark.parametrize(
        ("value", "error", "message"),
        [
            (
                2.0,
                InputMismatch,
                "input 0 is a float; expected a float32 tensor\n  next: pass a torch tensor",
            ),
            ([1.0, 2.0], InputMismatch, "input 0 is a list; expected a float32 tensor"),
            (None, InputMismatch, "input 0 is None; the program was exported with a tensor there"),
            (
                numpy.ma.masked_array([1.0, 2.0], [True, False], dtype="f4"),
                InputMismatch,
                "input 0 is a masked array, and a program would compute with what its mask hides",
            ),
            (
                torch.ones(2, device="meta"),
                UnsupportedLayout,
                "a Tensor on meta has no memory that can be read",
            ),
        ],
        ids=["float", "list", "None", "masked", "meta"],
    )
    def test_refused(self, program: Any, value: Any, error: type[TorchstoneError], message: str) -> None:
        with pytest.raises(error, match=f"^{re.escape(message)}"):
            program(value)

    def test_random_numbers_under_another_default_device(self) -> None:
        program = exported(lambda x: torch.nn.functional.dropout(x, 0.5), torch.ones(8))
        x = torch.ones(8)
        with torch.device("meta"):
            assert set(program(x).tolist()) <= {0.0, 2.0}


Pair = namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    hidden: torch.Tensor | None = None


torch.export.register_dataclass(Answer)


class TestStructuredResults:
    @pytest.mark.parametrize("stored", [False, True], ids=["exported", "loaded"])
    @pytest.mark.parametrize(
        ("function", "kind"),
        [
            (torch.sort, torch.return_types.sort),
            (torch.linalg.slogdet, torch.return_types.linalg_slogdet),
            (lambda x: torch.topk(x, 2), torch.return_types.topk),
            (lambda x: Pair(x + 1, x * 2), Pair),
        ],
        ids=["sort", "slogdet", "topk", "namedtuple"],
    )
    def test_named_tuples(self, function: Any, kind: type, stored: bool, tmp_path: Path) -> None:
        x = torch.tensor([[3.0, 1.0], [2.0, 5.0]])
        program, want = exported(function, x), function(x)
        if stored:
            program = reloaded(program, tmp_path)
        found = program(x)
        first, second = found
        assert type(found) is kind
        torch.testing.assert_close((first, second), tuple(want))
        names = getattr(kind, "_fields", None) or kind.__match_args__
        assert all(getattr(found, name) is part for name, part in zip(names, found, strict=True))
        assert found[-1] is second

    def test_class_that_no_module_has(self, tmp_path: Path) -> None:
        Local = namedtuple("Local", ["a", "b"])
        found = reloaded(exported(lambda x: Local(x, x * 2), torch.ones(1)), tmp_path)(torch.ones(1))
        a, b = found
        assert (type(found).__name__, found.a, found.b) == ("Local", a, b)
        assert found == (a, b)

    def test_named_tuple_as_input(self, tmp_path: Path) -> None:
        program = reloaded(exported(lambda p: p.left - p.right, Pair(torch.ones(2), torch.ones(2))), tmp_path)
        assert program(Pair(torch.ones(2) * 3, torch.ones(2))).tolist() == [2.0, 2.0]
        with pytest.raises(InputMismatch, match=r"is a tuple without \['left', 'right'\]; expected a Pair"):
            program((torch.ones(2), torch.ones(2)))

    def test_dataclass(self) -> None:
        found = exported(lambda x: Answer(x * 2), torch.ones(2))(torch.ones(2))
        assert found.logits.tolist() == [2.0, 2.0]
        assert found.hidden is None
        both = exported(lambda x: Answer(x * 2, x), torch.ones(2))(torch.ones(2))
        assert both.hidden is both[1]
        assert list(both) == ["logits", "hidden"]

    def test_other_containers(self, tmp_path: Path) -> None:
        def forward(x: torch.Tensor) -> Any:
            ordered = OrderedDict([(3, x), ("x", x * 2)])
            return ordered, defaultdict(list, {"d": x}), deque([x, x * 3]), x.shape

        x = torch.ones(2)
        found = reloaded(exported(forward, x), tmp_path)(x)
        assert list(found[0]) == [3, "x"]
        assert found[1]["d"].tolist() == [1.0, 1.0]
        assert found[2][1].tolist() == [3.0, 3.0]
        assert found[3] == (2,)

    def test_without_torch(self, tmp_path: Path) -> None:
        exported(lambda x: (torch.sort(x), Pair(x, x * 2)), torch.tensor([2.0, 1.0])).save(
            tmp_path / "p.stone"
        )
        script = (
            "import sys, numpy, torchstone\n"
            "ordered, pair = torchstone.load(sys.argv[1])(numpy.array([2, 1], numpy.float32))\n"
            "values, indices = ordered\n"
            "assert values.tolist() == [1.0, 2.0] and indices.tolist() == [1, 0]\n"
            "assert ordered.indices is indices and ordered[0] is values\n"
            "assert type(ordered).__name__ == 'sort'\n"
            "assert pair.right.tolist() == [4.0, 2.0] and pair._fields == ('left', 'right')\n"
            "assert 'torch' not in sys.modules\n"
        )
        subprocess.run([sys.executable, "-c", script, str(tmp_path / "p.stone")], check=True, timeout=120)

    def test_a_description_imports_nothing(self, tmp_path: Path) -> None:
        """A class that a file names is taken from an imported module only, and must be a named tuple."""
        from torchstone.trees import unflatten

        leaves = [{"leaf": 0}, {"leaf": 1}]
        for module, name in [
            ("antigravity", "Pair"),
            ("os", "system"),
            ("os", "stat_result"),
            ("builtins", "dict"),
        ]:
            entry = {"type": name, "module": module, "keys": ["left", "right"], "values": leaves}
            found = unflatten({"record": entry}, [1, 2])
            assert found == (1, 2)
            assert type(found).__module__ == "torchstone.trees"
        assert "antigravity" not in sys.modules

    def test_keys_that_a_file_cannot_hold(self, tmp_path: Path) -> None:
        program = exported(lambda x: {(1, 2): x}, torch.ones(1))
        assert program(torch.ones(1))[1, 2] == 1
        with pytest.raises(ArtifactError, match=r"cannot write .*: output_tree"):
            program.save(tmp_path / "keys.stone")
        assert not (tmp_path / "keys.stone").exists()


def test_numbers_that_are_sizes_are_compared() -> None:
    """A Python number that capture found to be a tensor's size has to be that size."""
    tree = {"tuple": [{"leaf": 0}, {"dim": "s0"}]}
    from torchstone.trees import flatten

    assert flatten(tree, (1, 7), symbols={"s0": 7}) == {0: 1}
    with pytest.raises(InputMismatch, match=r"inputs\[1\] is 8; the program was exported for 7"):
        flatten(tree, (1, 8), symbols={"s0": 7})


def test_number_that_was_made_dynamic() -> None:
    with pytest.raises(CaptureError, match=r"\w+_1 is a number that dynamic_shapes= made dynamic"):
        torchstone.export(lambda x, n: x * n, (torch.ones(2), 3), dynamic_shapes=(None, Dim.DYNAMIC))


def test_infinities_in_a_signature(tmp_path: Path) -> None:
    program = exported(lambda x, s: x * 1, torch.ones(1), -math.inf)
    path = program.save(tmp_path / "p.stone")
    assert json.dumps(torchstone.load(path).signature.input_tree).count("-Infinity") == 1
