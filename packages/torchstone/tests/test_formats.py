"""Every released format is read for ever: an artifact of each is kept in ``formats``."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import artifact_fixtures
import torchstone
from torchstone import generation, signature
from torchstone.errors import (
    ArtifactVersionError,
    IndexOutOfRange,
    InputMismatch,
    InvalidValue,
    ShardingError,
)

FORMATS = Path(__file__).parent / "formats"


def version_of(path: Path, member: str, key: str) -> Any:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(member))[key]


def test_each_format_has_a_file() -> None:
    programs = [f"format-{number + 1}" for number in range(signature.FORMAT_VERSION)]
    generators = [f"generator-{number + 1}" for number in range(generation.stored.FORMAT_VERSION)]
    assert sorted(artifact_fixtures.WRITTEN) == programs + generators
    assert sorted(path.stem for path in FORMATS.iterdir()) == programs + generators
    for number, name in enumerate(programs, 1):
        assert version_of(FORMATS / f"{name}.stone", "signature.json", "format_version") == number
    for number, name in enumerate(generators, 1):
        assert version_of(FORMATS / f"{name}.stone", "generation.json", "generation_version") == number


def test_format_1_is_read() -> None:
    program, model = torchstone.load(FORMATS / "format-1.stone"), artifact_fixtures.Everything()
    for batch in (1, 2, 5):
        args, kwargs = artifact_fixtures.everything_given(batch)
        given, same = artifact_fixtures.everything_given(batch)
        found, expected = program(*args, **kwargs), model(*given, **same)
        assert found._fields == expected._fields
        torch.testing.assert_close(found.scaled, expected.scaled)
        torch.testing.assert_close(args[1], given[1])  # the model changes this input
        (rest, *others), (wanted, *more) = found.rest, expected.rest
        assert (list(rest), rest["size"], others[:2]) == (list(wanted), batch, more[:2])
        torch.testing.assert_close([*rest.values()][:2], [*wanted.values()][:2])
        assert others[2].tolist() == [True] * batch
    assert int(program.state()["calls"]) == int(model.calls) == 5
    (x, counts, rows), kwargs = artifact_fixtures.everything_given(2)
    with pytest.raises(IndexOutOfRange):
        program(x, counts, rows + 1, **kwargs)
    with pytest.raises(InvalidValue):
        program(x, counts, rows, divisor=kwargs["divisor"] * 0)


@pytest.mark.parametrize(
    ("name", "make"), [("format-2", artifact_fixtures.Sharded), ("format-3", artifact_fixtures.Tied)]
)
def test_formats_2_and_3_are_read(name: str, make: type[torch.nn.Module]) -> None:
    x = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]])
    torch.testing.assert_close(torchstone.load(FORMATS / f"{name}.stone")(x), make()(x).detach())


def test_format_4_is_read() -> None:
    program = torchstone.load(FORMATS / "format-4.stone")
    x = torch.ones(4, 5)
    torch.testing.assert_close(program(x), artifact_fixtures.Related()(x))
    with pytest.raises(InputMismatch, match=r"for sizes with \(input 0\.shape\[0\] % 2\) == 0"):
        program(torch.ones(5, 5))


def test_format_5_is_read() -> None:
    program = torchstone.load(FORMATS / "format-5.stone")
    assert program.signature.ranks == 2
    assert "replica_groups = dense<[[0, 1]]>" in program.mlir_text()
    assert program.state()["weight"].tolist() == artifact_fixtures.Joined().weight.tolist()
    with pytest.raises(ShardingError, match="calls collectives of 2 ranks"):
        program(torch.ones(3))


def test_format_6_is_read() -> None:
    program, model = torchstone.load(FORMATS / "format-6.stone"), artifact_fixtures.Selecting()
    for given in (torch.arange(-4.0, 5).reshape(3, 3), -torch.ones(2, 3), torch.ones(3, 3)):
        for found, expected in zip(program(given), model(given), strict=True):
            torch.testing.assert_close(found, expected)
    with pytest.raises(InvalidValue, match="u0 <= 9"):
        program(torch.ones(4, 3))


@pytest.mark.parametrize(("name", "lengths"), [("generator-1", (8,)), ("generator-2", (5, 8))])
def test_each_generator_is_read(name: str, lengths: tuple[int, ...]) -> None:
    loaded = torchstone.load_generation(FORMATS / f"{name}.stone")
    assert loaded.settings.decode_lengths == lengths
    found = loaded.generate(numpy.array([[3, 7, 1]]), max_new_tokens=5)
    expected = [[3, 7, 1, 4, 4, 4, 2, 10]]
    assert numpy.asarray(found).tolist() == expected
    pytest.importorskip("transformers", reason="the extra torchstone[models] is not installed")
    model = artifact_fixtures.language_model()
    eager = model.generate(torch.tensor([[3, 7, 1]]), max_new_tokens=5, do_sample=False)
    assert eager.tolist() == expected


@pytest.mark.parametrize("path", sorted(FORMATS.iterdir()), ids=lambda path: path.stem)
def test_a_newer_file_is_refused(path: Path, tmp_path: Path) -> None:
    generator = path.stem.startswith("generator")
    member, key = (
        ("generation.json", "generation_version") if generator else ("signature.json", "format_version")
    )
    newer = tmp_path / path.name
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(newer, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == member:
                content = json.dumps({key: 99, "what": "is not known"}).encode()
            new.writestr(name, content)
    load = torchstone.load_generation if generator else torchstone.load
    with pytest.raises(
        ArtifactVersionError, match=r"format version 99; .*reads up to \d+\n  next: update torchstone"
    ):
        load(newer)
