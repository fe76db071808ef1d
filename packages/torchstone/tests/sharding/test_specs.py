"""Meshes and partition specs: what they mean, and every way of getting them wrong. Needs one device."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor.placement_types import Partial, Replicate, Shard

import torchstone
from torchstone.errors import ArtifactError, ArtifactVersionError, InputMismatch, ShardingError
from torchstone.sharding import LocalPart, Mesh, block
from torchstone.signature import FORMAT_VERSION

MESH = Mesh({"data": 2, "model": 3})


@pytest.mark.parametrize(
    ("given", "spec"),
    [
        ("data", (("data",), ())),
        ((None, "model"), ((), ("model",))),
        ([("data", "model")], (("data", "model"), ())),
        ((), ((), ())),
        ([Shard(0), Replicate()], (("data",), ())),
        ([Shard(-1), Shard(0)], (("model",), ("data",))),
        ([Shard(0), Shard(0)], (("data", "model"), ())),
    ],
)
def test_forms_of_specs(given: Any, spec: Any) -> None:
    assert MESH.spec(given, 2, "x") == spec


def test_a_mesh_of_one_device(tmp_path: Path) -> None:
    model, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    program = torchstone.export(model, (x,), mesh=Mesh({"data": 1}), shardings={"input": ("data", None)})
    loaded = torchstone.load(program.save(tmp_path / "one.stone"))
    torch.testing.assert_close(loaded(x), model(x).detach())


def test_parts_of_an_array() -> None:
    parts = list(MESH.slices((("model",), ("data",)), (6, 4)))
    assert [(rows.start, rows.stop, columns.start) for rows, columns in parts] == [
        (0, 2, 0), (2, 4, 0), (4, 6, 0), (0, 2, 2), (2, 4, 2), (4, 6, 2),
    ]  # fmt: skip
    joined = [part[0].start for part in MESH.slices((("data", "model"),), (6,))]
    assert joined == [0, 1, 2, 3, 4, 5]
    assert list(MESH.slices(((),), (6,))) == [(slice(0, 6),)] * 6


def test_the_block_of_several_parts() -> None:
    """Devices 0 to 2 hold the first half of the columns, 0 and 3 the first rows; 0 and 4 form no block."""
    parts = list(MESH.slices((("model",), ("data",)), (6, 4)))
    assert block(parts[:3]) == (slice(0, 6), slice(0, 2))
    assert block([parts[0], parts[3], parts[0]]) == (slice(0, 2), slice(0, 4))
    assert block([parts[0], parts[4]]) is None
    assert block([(), ()]) == ()


def test_a_local_part_without_other_processes() -> None:
    """With one process, its part is the whole argument; a program without a mesh accepts no part."""
    model, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    split = torchstone.export(model, (x,), mesh=Mesh({"data": 1}), shardings={"input": "data"})
    torch.testing.assert_close(split(LocalPart(x, x.shape)), model(x).detach())
    with pytest.raises(InputMismatch, match=r"must be float32\[4, 3\], found float64\[4, 3\]"):
        split(LocalPart(x.double(), x.shape))
    with pytest.raises(InputMismatch, match="is a LocalPart, and the program runs on one device"):
        torchstone.export(model, (x,))(LocalPart(x, x.shape))


@pytest.mark.parametrize(
    ("array", "shape", "message"),
    [
        (torch.ones(4, 3), (3,), r"of the shape \[4, 3\] is not a part of one of the shape \[3\]"),
        (torch.ones(4, 3), (2, 3), r"of the shape \[4, 3\] is not a part of one of the shape \[2, 3\]"),
        ([1.0, 2.0], (4,), "a list is not an array"),
    ],
)
def test_bad_local_parts(array: Any, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        LocalPart(array, shape)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({}, "the mesh has no axes"),
        ({"data": 0}, "the mesh axis 'data' has the size 0"),
        ({"data": True}, "the mesh axis 'data' has the size True"),
        ({"two words": 2}, "'two words' is not a name of a mesh axis"),
        ({1: 2}, "1 is not a name of a mesh axis"),
        ({"data": 1 << 40}, "a mesh of 1099511627776 devices is too large"),
    ],
)
def test_bad_meshes(axes: Any, message: str) -> None:
    with pytest.raises(ShardingError) as caught:
        Mesh(axes)
    assert caught.value.message == message


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("shardings", "message"),
    [
        ({"weight": "tensor"}, "the sharding 'tensor' of 'weight' names the axis 'tensor', and the mesh has"),
        ({"weight": (None, None, "data")}, "has 3 entries, and 'weight' 2 dimension(s)"),
        ({"weight": ("data", "data")}, "has the mesh axis 'data' twice"),
        ({"weight": (("model", "data"), "data")}, "has the mesh axis 'data' twice"),
        ({"weight": 3}, "the sharding 3 of 'weight' is not a partition spec"),
        ({"weight": (3,)}, "3 in the sharding (3,) of 'weight' is not a mesh axis"),
        ({"weight": [Shard(0)]}, "'weight' has 1 placement(s), and the mesh 2 axes"),
        ({"weight": [Shard(2), Replicate()]}, "'weight' with 2 dimension(s) cannot have the placement"),
        ({"weight": [Partial(), Replicate()]}, "'weight' with 2 dimension(s) cannot have the placement"),
        ({"weigth": "data"}, "shardings= names 'weigth', and there is no such parameter, buffer or input"),
        ({"layers.*": "data"}, "shardings= names 'layers.*', and there is no such parameter"),
        (
            {"weight": "model"},
            (
                "dimension 0 of 'weight' has the size 4, which does not split into 3 equal parts over the "
                "mesh axis 'model'"
            ),
        ),
        (
            {"weight": [("data", "model")]},
            (
                "dimension 0 of 'weight' has the size 4, which does not split into 6 equal parts over the "
                "mesh axes 'data' and 'model'"
            ),
        ),
        (["weight"], "shardings= is a list, which is not a mapping"),
    ],
)
def test_bad_shardings(shardings: Any, message: str) -> None:
    with pytest.raises(ShardingError) as caught:
        torchstone.export(torch.nn.Linear(6, 4), (torch.randn(2, 6),), mesh=MESH, shardings=shardings)
    assert message in caught.value.message
    assert caught.value.hint


def test_bad_mesh_arguments() -> None:
    model, args = torch.nn.Linear(6, 4), (torch.randn(2, 6),)
    with pytest.raises(ShardingError, match="mesh= is a dict, which is not a mesh"):
        torchstone.export(model, args, mesh={"data": 2})  # type: ignore[arg-type]
    with pytest.raises(ShardingError, match="shardings= needs a mesh"):
        torchstone.export(model, args, shardings={"weight": "data"})


def test_misspelled_names_get_advice() -> None:
    with pytest.raises(ShardingError, match=r"did you mean weight\?"):
        torchstone.export(
            torch.nn.Linear(6, 4), (torch.randn(2, 6),), mesh=MESH, shardings={"weigth": "data"}
        )


def _saved(folder: Path) -> Path:
    model = torch.nn.Linear(6, 4)
    program = torchstone.export(
        model, (torch.randn(2, 6),), mesh=Mesh({"data": 64}), shardings={"weight": (None, None)}
    )
    return program.save(folder / "linear.stone")


def test_a_mesh_that_does_not_fit_the_devices(tmp_path: Path) -> None:
    program = torchstone.load(_saved(tmp_path))
    with pytest.raises(
        ShardingError, match=r"the mesh data=64 needs 64 devices, and cpu has \d+\n.*CPU_DEVICES"
    ):
        program(torch.randn(2, 6))


def test_engines_with_one_device_refuse(tmp_path: Path) -> None:
    program = torchstone.load(_saved(tmp_path), engine="reference")
    with pytest.raises(ShardingError, match="the engine 'reference' has one device"):
        program(torch.randn(2, 6))


def _changed(path: Path, change: Any) -> Path:
    """The artifact with another signature."""
    target = path.with_name("changed.stone")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "signature.json":
                description = json.loads(content)
                change(description)
                content = json.dumps(description).encode()
            new.writestr(zipfile.ZipInfo(name), content)
    return target


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(mesh=[]), "the mesh has no axes"),
        (lambda d: d.update(mesh=[["data", "two"]]), "the mesh axis 'data' has the size 'two'"),
        (lambda d: d.update(mesh=[["data", 2], ["data", 2]]), "mesh"),
        (lambda d: d.update(mesh=[["data", 1 << 40]]), "devices is too large"),
        (lambda d: d.update(format_version=1), "format version 1 has no mesh"),
        (lambda d: d["inputs"][0].pop("sharding"), "'sharding' is missing"),
        (lambda d: d["inputs"][0].update(sharding=[["data"]]), "the sharding of"),
        (lambda d: d["inputs"][0].update(sharding=[["data"], []]), "does not split into 64 equal parts"),
        (lambda d: d["inputs"][0].update(sharding=[["model"], []]), "names the axis 'model'"),
        (lambda d: d["inputs"][0].update(sharding=[[[]], []]), "is not a mesh axis"),
    ],
)
def test_damaged_meshes(change: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="not a usable artifact") as caught:
        torchstone.load(_changed(_saved(tmp_path), change))
    assert message in caught.value.message


def test_only_programs_for_a_mesh_have_the_new_format(tmp_path: Path) -> None:
    def version(path: Path) -> int:
        with zipfile.ZipFile(path) as archive:
            return int(json.loads(archive.read("signature.json"))["format_version"])

    plain = torchstone.export(torch.nn.Linear(6, 4), (torch.randn(2, 6),)).save(tmp_path / "plain.stone")
    assert (version(plain), version(_saved(tmp_path))) == (1, 2)
    newer = _changed(plain, lambda d: d.update(format_version=FORMAT_VERSION + 1))
    message = f"format version {FORMAT_VERSION + 1}; this Torchstone reads up to {FORMAT_VERSION}"
    with pytest.raises(ArtifactVersionError, match=message):
        torchstone.load(newer)
