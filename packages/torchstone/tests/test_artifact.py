"""The artifact's file: what comes back, and everything that is refused."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy
import pytest
import safetensors
import safetensors.numpy
import torch

import torchstone
from torchstone import dtypes
from torchstone.artifact import Artifact, load_artifact, save_artifact
from torchstone.dtypes import FLOAT32, INT64, UINT64, DType
from torchstone.errors import ArtifactError, ArtifactVersionError
from torchstone.signature import FORMAT_VERSION, InputSpec, OutputSpec, Signature


def sample() -> Artifact:
    signature = Signature(
        inputs=(
            InputSpec("parameter", "p_w", (2, 3), FLOAT32, "layer.w"),
            InputSpec("buffer", "b_n", (), INT64, "layer.n"),
            InputSpec("input", "x", ("s0", 3), FLOAT32),
            InputSpec("input", "y", ("2*s0 + 1", 3), FLOAT32),
            InputSpec("seed", "seed", (2,), UINT64),
        ),
        outputs=(
            OutputSpec("buffer_mutation", "add", (), INT64, "layer.n"),
            OutputSpec("input_mutation", "mul", ("s0", 3), FLOAT32, "x"),
            OutputSpec("output", "mm", ("s0", 2), FLOAT32),
        ),
        input_tree={
            "tuple": [
                {"tuple": [{"leaf": 0}, {"const": 2.5}]},
                {"dict": {"keys": ["y", "z"], "values": [{"leaf": 1}, {"none": None}]}},
            ]
        },
        output_tree={
            "record": {
                "type": "Output",
                "keys": ["logits", "size"],
                "values": [{"leaf": 0}, {"dim": "s0**2"}],
            }
        },
        symbols={"s0": (2, None)},
        stablehlo_version="1.13.0",
        producer={"torchstone": "0.1", "torch": "2.13"},
    )
    weights = {"layer.w": numpy.arange(6, dtype=numpy.float32).reshape(2, 3), "layer.n": numpy.array(7)}
    return Artifact(b"ML\xefR any bytes", signature, weights)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_artifact(tmp_path / "model.stone", sample())


def test_round_trip(saved: Path) -> None:
    artifact, found = sample(), load_artifact(saved)
    assert found.module == artifact.module
    assert found.signature == artifact.signature
    assert found.weights.keys() == artifact.weights.keys()
    for name, array in artifact.weights.items():
        numpy.testing.assert_array_equal(found.weights[name], array, strict=True)
        assert found.weights[name].flags.writeable


@pytest.mark.parametrize("dtype", sorted(dtypes.EVERY, key=lambda dtype: dtype.name), ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)], ids=str)
def test_weights_of_every_dtype(tmp_path: Path, dtype: DType, shape: tuple[int, ...]) -> None:
    values = numpy.arange(1, 7)[: int(numpy.prod(shape))].reshape(shape).astype(dtype.numpy)
    tree = {"tuple": [{"tuple": []}, {"dict": {"keys": [], "values": []}}]}
    path = save_artifact(tmp_path / "w.stone", Artifact(b"ML", Signature((), (), tree, tree), {"w": values}))
    numpy.testing.assert_array_equal(load_artifact(path).weights["w"], values, strict=True)


def test_weights_are_a_safetensors_file(saved: Path) -> None:
    """Other tools can read the weights, also bfloat16 under its own name."""
    artifact = sample()
    artifact.weights["half"] = numpy.ones(3, ml_dtypes.bfloat16)[::2]
    save_artifact(saved, artifact)
    with zipfile.ZipFile(saved) as archive:
        stored = dict(safetensors.deserialize(archive.read("weights.safetensors")))
    assert {name: (entry["dtype"], entry["shape"]) for name, entry in stored.items()} == {
        "half": ("BF16", [2]),
        "layer.n": ("I64", []),
        "layer.w": ("F32", [2, 3]),
    }


def test_large_weights_are_aligned_in_a_mapped_file(tmp_path: Path) -> None:
    artifact = sample()
    artifact.weights["big"] = numpy.arange(1 << 19, dtype=numpy.float32)
    artifact.weights["odd"] = numpy.ones(3, numpy.int8)
    found = load_artifact(save_artifact(tmp_path / "big.stone", artifact)).weights
    assert found["big"].ctypes.data % 64 == 0
    for name, array in artifact.weights.items():
        numpy.testing.assert_array_equal(found[name], array, strict=True)
    before = (tmp_path / "big.stone").read_bytes()
    found["big"][...] = 0  # the mapping is private
    assert (tmp_path / "big.stone").read_bytes() == before


def test_weights_as_earlier_releases_wrote_them(saved: Path) -> None:
    """Earlier releases used the safetensors library, and a zip file without alignment."""

    def apply(members: Members) -> Members:
        weights = safetensors.numpy.save(sample().weights)
        description = json.loads(members["signature.json"])
        description["sha256"]["weights.safetensors"] = hashlib.sha256(weights).hexdigest()
        signature = json.dumps(description, indent=1).encode()
        return {
            "signature.json": signature,
            "module.stablehlo": members["module.stablehlo"],
            "weights.safetensors": weights,
        }

    rewrite(saved, apply)
    assert load_artifact(saved).signature == sample().signature
    for name, array in load_artifact(saved).weights.items():
        numpy.testing.assert_array_equal(array, sample().weights[name], strict=True)


_PEAK = """\
import sys
import numpy, torchstone
def peak(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)) << 10
small, large = sys.argv[1:]
torchstone.load(small)(numpy.ones((1, 2), numpy.float32))
before = peak("VmRSS")
program = torchstone.load(large)
program(numpy.ones((1, 6000), numpy.float32))
print((peak("VmHWM") - before) / sum(array.nbytes for array in program.state().values()))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_loaded_program_takes_the_memory_of_its_weights(tmp_path: Path) -> None:
    paths = []
    for width in (2, 6000):
        layer = torch.nn.utils.skip_init(torch.nn.Linear, width, width)
        program = torchstone.export(layer, (torch.ones(1, width),))
        paths.append(program.save(tmp_path / f"{width}.stone"))
    ran = subprocess.run([sys.executable, "-c", _PEAK, *paths], capture_output=True, text=True, check=True)
    assert 0.5 < float(ran.stdout) < 1.3


_EXPORT_PEAK = """\
import sys
import torch, torchstone
def peak(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)) << 10
def export(width):
    layers = [torch.nn.utils.skip_init(torch.nn.Linear, width, width) for _ in range(2)]
    for layer in layers:
        layer.weight.data.zero_()
    args = (torch.ones(1, width),)
    program = torchstone.export(torch.nn.Sequential(*layers), args, share_weights=sys.argv[2] == "shared")
    program.save(sys.argv[1])
export(2)
before = peak("VmRSS")
export(5000)
print((peak("VmHWM") - before) / (2 * 4 * 5000 * 5000))
"""


@pytest.mark.conformance
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("share", "least", "most"), [("shared", 0.9, 1.3), ("copied", 1.9, 2.3)])
def test_an_export_takes_the_memory_of_the_weights_once_if_it_shares_them(
    share: str, least: float, most: float, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", _EXPORT_PEAK, str(tmp_path / "m.stone"), share]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert least < float(ran.stdout) < most


@pytest.mark.parametrize("share", [True, False])
def test_shared_weights_are_the_memory_of_the_model(share: bool, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    model[0].weight = torch.nn.Parameter(torch.randn(3, 3).t())  # not contiguous, so it is always copied
    model.append(model[0])
    x = torch.randn(4, 3)
    before = copy.deepcopy(model)
    program = torchstone.export(model, (x,), share_weights=share)
    torch.testing.assert_close(program(x), before(x))
    # A call changes the program's buffers, never the model's.
    assert model[1].running_mean.count_nonzero() == 0
    torch.testing.assert_close(
        torch.from_numpy(program.state()["1.running_mean"].copy()), before[1].running_mean
    )
    with torch.no_grad():
        model[0].bias.add_(1)
    stored = load_artifact(program.save(tmp_path / "m.stone"))
    assert numpy.array_equal(stored.weights["0.bias"], model[0].bias.detach().numpy()) is share
    assert stored.weights["2.bias"] is stored.weights["0.bias"]


def test_tied_parameters_are_stored_once(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    program = torchstone.export(model, (torch.ones(1, 3),))
    found = load_artifact(program.save(tmp_path / "tied.stone")).weights
    assert found["0.weight"] is found["1.weight"]


def test_weights_that_are_the_same_memory_are_stored_once(tmp_path: Path) -> None:
    artifact = sample()
    artifact.weights["tied"] = artifact.weights["layer.w"]
    path = save_artifact(tmp_path / "tied.stone", artifact)
    found = load_artifact(path).weights
    assert found["tied"] is found["layer.w"]
    with zipfile.ZipFile(path) as archive:
        stored = dict(safetensors.deserialize(archive.read("weights.safetensors")))
        assert json.loads(archive.read("signature.json"))["format_version"] == 3
    assert sorted(stored) == ["layer.n", "layer.w"]


def test_same_artifact_same_bytes(tmp_path: Path) -> None:
    one, other = sample(), sample()
    other.weights = dict(reversed(other.weights.items()))
    contents = [save_artifact(tmp_path / name, a).read_bytes() for name, a in (("a", one), ("b", other))]
    assert contents[0] == contents[1]


def test_overwriting_keeps_the_old_file_until_the_end(
    saved: Path, largest_file: Callable[[int], AbstractContextManager[None]]
) -> None:
    before = saved.read_bytes()
    refused = r"cannot write the artifact .*model\.stone: File too large"
    with largest_file(500), pytest.raises(ArtifactError, match=refused):
        save_artifact(saved, sample())
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["model.stone"]


def test_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(
        ArtifactError, match="No such file or directory\n  next: check that the folder exists"
    ):
        save_artifact(tmp_path / "nowhere" / "model.stone", sample())


def test_target_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "model.stone").mkdir()
    with pytest.raises(ArtifactError, match="cannot write the artifact"):
        save_artifact(tmp_path / "model.stone", sample())
    assert os.listdir(tmp_path) == ["model.stone"]


def test_file_permissions_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = save_artifact(tmp_path / "model.stone", sample())
    finally:
        os.umask(before)
    assert os.stat(path).st_mode & 0o777 == 0o640


# --- files that are refused ------------------------------------------------------------


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"cannot read the artifact .*none\.stone: No such file"):
        load_artifact(tmp_path / "none.stone")


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip file at all", os.urandom(4096)])
def test_foreign_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "foreign").write_bytes(content)
    with pytest.raises(
        ArtifactError, match="is not a usable artifact: File is not a zip file\n  next: the file was cut"
    ):
        load_artifact(tmp_path / "foreign")


def test_truncation_anywhere(saved: Path) -> None:
    content = saved.read_bytes()
    for length in range(0, len(content), 97):
        saved.write_bytes(content[:length])
        with pytest.raises(ArtifactError):
            load_artifact(saved)


def test_a_changed_byte_is_refused_or_changes_nothing(saved: Path) -> None:
    """Bytes without a meaning for a reader may change, for example times in the zip headers."""
    content = saved.read_bytes()
    refused = 0
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 0xFF
        saved.write_bytes(changed)
        try:
            found = load_artifact(saved)
        except ArtifactError:
            refused += 1
            continue
        assert found.module == sample().module
        assert found.signature == sample().signature
        assert found.weights["layer.w"].tolist() == sample().weights["layer.w"].tolist()
    assert refused > 0.9 * len(content)


def test_appended_and_prepended_bytes(saved: Path) -> None:
    content = saved.read_bytes()
    for changed in (content + b"x" * 5000, b"x" * 5000 + content):
        saved.write_bytes(changed)
        with pytest.raises(ArtifactError, match=r"its size is not that of its members|not a zip file"):
            load_artifact(saved)


Members = dict[str, bytes]


def rewrite(path: Path, change: Callable[[Members], Members | None], **options: Any) -> None:
    """Write the zip anew with other members."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members = change(members) or members
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_extra_and_missing_members(saved: Path) -> None:
    original = saved.read_bytes()
    for change in (
        lambda members: {**members, "../evil": b""},
        lambda members: {**members, "readme": b"hello"},
        lambda members: {k: v for k, v in members.items() if k != "weights.safetensors"},
        lambda members: {("/" + k): v for k, v in members.items()},
        lambda members: {},
    ):
        saved.write_bytes(original)
        rewrite(saved, lambda members, change=change: change(members) or {"other": b""})
        with pytest.raises(ArtifactError, match=r"is not a usable artifact: it contains \["):
            load_artifact(saved)


def test_member_twice(saved: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(saved, "a") as archive:
        archive.writestr("module.stablehlo", b"another")
    with pytest.raises(ArtifactError, match="it contains"):
        load_artifact(saved)


def test_compressed_members_cannot_be_a_bomb(saved: Path) -> None:
    rewrite(
        saved, lambda members: {**members, "module.stablehlo": bytes(10**6)}, compression=zipfile.ZIP_DEFLATED
    )
    assert saved.stat().st_size < 10**5
    with pytest.raises(ArtifactError, match="its members are compressed"):
        load_artifact(saved)


def test_stored_member_that_lies_about_its_size(saved: Path) -> None:
    content = bytearray(saved.read_bytes())
    entry = content.index(b"PK\x01\x02")  # the first entry of the central directory
    struct.pack_into("<II", content, entry + 20, 10**9, 10**9)
    saved.write_bytes(content)
    with pytest.raises(ArtifactError, match="its size is not that of its members"):
        load_artifact(saved)


@pytest.mark.parametrize("name", ["module.stablehlo", "weights.safetensors"])
def test_exchanged_member(saved: Path, name: str) -> None:
    rewrite(saved, lambda members: {**members, name: members[name] + b" "})
    with pytest.raises(ArtifactError, match=re.escape(f"{name} is not what signature.json says")):
        load_artifact(saved)


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the decoded ``signature.json``."""

    def apply(members: Members) -> Members:
        description = json.loads(members["signature.json"])
        change(description)
        return {**members, "signature.json": json.dumps(description).encode()}

    rewrite(path, apply)


def test_newer_format(saved: Path) -> None:
    edit(saved, lambda d: d.update(format_version=FORMAT_VERSION + 1, inputs="something new"))
    message = (
        f"has format version {FORMAT_VERSION + 1}; this Torchstone reads up to {FORMAT_VERSION}\n  next: up"
    )
    with pytest.raises(ArtifactVersionError, match=message):
        load_artifact(saved)


@pytest.mark.parametrize("version", [0, -1])
def test_format_that_never_was(saved: Path, version: int) -> None:
    edit(saved, lambda d: d.update(format_version=version))
    with pytest.raises(ArtifactError, match=f"format version {version} does not exist"):
        load_artifact(saved)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{", b"[" * 100_000, b"\xff\xfe", b'"text"', b"{}", b'{"format_version": "1"}']
)
def test_signature_that_is_no_signature(saved: Path, text: bytes) -> None:
    rewrite(saved, lambda members: {**members, "signature.json": text})
    with pytest.raises(ArtifactError, match=r"signature\.json is not JSON|'format_version' is missing"):
        load_artifact(saved)


def put(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(description: Any) -> None:
        for key in path[:-1]:
            description = description[key]
        if value is DELETE:
            del description[path[-1]]
        else:
            description[path[-1]] = value

    return change


def related(relation: Any) -> Callable[[Any], None]:
    def change(description: Any) -> None:
        description["format_version"], description["relations"] = 4, [relation]

    return change


DELETE = object()
TOP_LEVEL = ["format_version", "stablehlo_version", "producer", "sha256", "inputs", "outputs"]
TOP_LEVEL += ["input_tree", "output_tree", "symbols", "weights"]
NONE = {"none": None}
DEEP: dict[str, Any] = {"leaf": 0}
for _ in range(300):
    DEEP = {"tuple": [DEEP]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *[(put(key, value=DELETE), f"'{key}' is missing") for key in TOP_LEVEL],
        (put("inputs", 0, "kind", value="secret"), "'secret' is not a kind of an InputSpec"),
        (put("inputs", 0, "kind", value="output"), "'output' is not a kind of an InputSpec"),
        (put("outputs", 0, "kind", value="input"), "'input' is not a kind of an OutputSpec"),
        (put("inputs", 0, "name", value=3), "'name' is missing or has the wrong type"),
        (put("inputs", 0, "dtype", value="float33"), "'float33' is not a dtype"),
        (put("inputs", 0, "dtype", value="int32"), "weight 'layer.w' is not the int32[2, 3] of its input"),
        (put("inputs", 0, "shape", value=[3, 2]), "weight 'layer.w' is not the float32[3, 2] of its input"),
        (put("inputs", 0, "shape", value=[2, -3]), "-3 is not a dimension"),
        (put("inputs", 0, "shape", value=[2, True]), "True is not a dimension"),
        (put("inputs", 0, "shape", value=[2, 3.0]), "3.0 is not a dimension"),
        (put("inputs", 2, "shape", value=["__import__('os')", 3]), "is not a dimension"),
        (put("inputs", 2, "shape", value=["9**9**9**9", 3]), "'9**9**9**9' is not a dimension"),
        (put("inputs", 2, "shape", value=["s0**999", 3]), "'s0**999' is not a dimension"),
        (put("inputs", 2, "shape", value=["((((s0**9)**9)**9)**9)**9", 3]), "is not a dimension"),
        (put("inputs", 2, "shape", value=["s0+" * 999 + "1", 3]), "is not a dimension"),
        (put("inputs", 2, "shape", value=["t0", 3]), "unknown symbol t0"),
        (put("outputs", 2, "shape", value=["Max(s0, t1)", 2]), "unknown symbol t1"),
        (put("output_tree", value={"tuple": [{"leaf": 0}, {"dim": "t0"}]}), "unknown symbol t0"),
        (put("outputs", 2, "shape", value=[1] * 65), "65 dimensions are too many"),
        (put("inputs", 0, "target", value="layer.v"), "there is no weight 'layer.v'"),
        (put("inputs", 0, "target", value=None), "there is no weight None"),
        (put("inputs", 0, "target", value=[]), "target"),
        (put("outputs", 0, "target", value="nothing"), "mutation of the unknown 'nothing'"),
        (put("outputs", 1, "target", value="seed"), "mutation of the unknown 'seed'"),
        (put("input_tree", value={"tuple": [{"leaf": 0}]}), "leaves of input_tree"),
        (put("input_tree", value={"tuple": [{"leaf": 0}, {"leaf": 0}]}), "leaves of input_tree"),
        (put("input_tree", value={"tuple": [{"leaf": 0}, {"leaf": "1"}]}), "leaves of input_tree"),
        (put("input_tree", value=DEEP), "leaves of input_tree"),
        *[
            (put("input_tree", value=tree), "input_tree is not that of a call")
            for tree in (
                {"tuple": [{"leaf": 0}, {"leaf": 1}]},
                {"tuple": [{"tuple": [{"leaf": 0}, {"leaf": 1}]}]},
                {"tuple": [{"tuple": [{"leaf": 0}, {"leaf": 1}]}, {"tuple": []}]},
                {"tuple": [{"tuple": [{"leaf": 0}, {"leaf": 1}]}, {"dict": {"keys": [1], "values": [NONE]}}]},
                {"list": [{"tuple": [{"leaf": 0}, {"leaf": 1}]}, {"dict": {"keys": [], "values": []}}]},
            )
        ],
        (put("output_tree", value={"leaf": 0, "none": None}), "output_tree"),
        (put("output_tree", value={"set": [{"leaf": 0}]}), "output_tree has a 'set'"),
        (put("output_tree", value={"tuple": [3]}), "output_tree"),
        (put("output_tree", value={"tuple": {"leaf": 0}}), "'tuple' is missing or has the wrong type"),
        (put("output_tree", value={"dict": {"keys": [], "values": [{"leaf": 0}]}}), "output_tree"),
        (put("output_tree", value={"dict": {"keys": [[]], "values": [{"leaf": 0}]}}), "output_tree"),
        (put("output_tree", value={"record": {"keys": ["a"], "values": [{"leaf": 0}]}}), "output_tree"),
        (put("output_tree", value={"tuple": [{"leaf": 0}, {"dim": "open('x')"}]}), "is not a dimension"),
        (put("symbols", value={"s0": [1]}), "the bounds of symbol 's0'"),
        (put("symbols", value={"s0": [None, 2]}), "the bounds of symbol 's0'"),
        (put("relations", value=[]), "format version 1 has no relations"),
        *[
            (related(relation), f"{str(relation)!r} is not a relation")
            for relation in (
                7,
                "s0",
                "s0 == 9**9**9**9",
                "open('x') == 1",
                "s0 == 2 if s0 else 1",
                "s0.real == 1",
                "1 < s0 < 3",
                "(s0 == 2) == 1",
                "s0 in s0",
            )
        ],
        (related("s0 == t0"), "unknown symbol t0"),
        (put("reasons", value=[]), "'reasons' is missing or has the wrong type"),
        (put("reasons", value={"s0 != 0": 7}), "the reasons of relations"),
        (put("reasons", value={"s0 != 0": "why"}), "reasons of what is not a relation"),
        (put("producer", value={"torch": 2}), "producer"),
        (put("sha256", "module.stablehlo", value=5), "'module.stablehlo' is missing or has the wrong type"),
        (put("weights", "more", value={"dtype": "int8", "shape": []}), "has other names than signature.json"),
        (put("weights", "layer.n", value=DELETE), "has other names than signature.json"),
        (put("weights", "layer.n", "shape", value=[1]), "weight 'layer.n': shape"),
        (put("weights", "layer.n", "dtype", value="int32"), "weight 'layer.n': size"),
        (put("weights", "layer.n", value=7), "'dtype' is missing or has the wrong type"),
    ],
)
def test_every_field_is_checked(saved: Path, change: Callable[[Any], None], message: str) -> None:
    edit(saved, change)
    with pytest.raises(ArtifactError, match=re.escape(message)):
        load_artifact(saved)


def test_an_error_does_not_repeat_a_whole_file(saved: Path) -> None:
    edit(saved, put("inputs", 0, "kind", value="k" * 100_000))
    with pytest.raises(ArtifactError) as caught:
        load_artifact(saved)
    assert len(str(caught.value)) < 2000


def test_weights_that_safetensors_refuses(saved: Path) -> None:
    broken = b"\xff" * 40

    def apply(members: Members) -> Members:
        description = json.loads(members["signature.json"])
        description["sha256"]["weights.safetensors"] = hashlib.sha256(broken).hexdigest()
        return {**members, "weights.safetensors": broken, "signature.json": json.dumps(description).encode()}

    rewrite(saved, apply)
    with pytest.raises(ArtifactError, match=r"weights\.safetensors: .*header"):
        load_artifact(saved)


@pytest.mark.parametrize("relation", ["(s0 % 2) == 0", "s0 != 9 and not (s0 < 2 or max(s0, 3) >= 7*s0 // 2)"])
def test_relations_that_programs_have(saved: Path, relation: str) -> None:
    edit(saved, related(relation))
    assert load_artifact(saved).signature.relations == (relation,)


@pytest.mark.parametrize(
    "expression", ["s0", "2*s0 + 1", "s0**2", "(s0 // 2)", "Max(1, s0)", "-s0 + 10", "s0 % 4"]
)
def test_dimensions_that_programs_have(saved: Path, expression: str) -> None:
    edit(saved, put("inputs", 2, "shape", value=[expression, 3]))
    assert load_artifact(saved).signature.inputs[2].shape == (expression, 3)
