"""Every mistake in a plan is one PlanError that names file, line, key, what was found and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from optest.errors import PlanError
from optest.plan.loader import load
from optest.plan.options import resolve

Write = Callable[..., Path]

MISTAKES = {
    "unknown key": (
        "cases:\n  - op: relu\n    shpaes: {input0: [3]}\n",
        3,
        "cases[0].shpaes",
        ("unknown key", "found: 'shpaes'", "backend_config", "did you mean shapes"),
    ),
    "unknown key at the top": ("case:\n  - op: relu\n", 1, "case", ("unknown key", "did you mean cases")),
    "unknown setting of a driver": (
        "cases:\n  - op: relu\n    backend_config:\n      ascend: {outputs: [{tensor: y, pth: x.bin}]}\n",
        4,
        "cases[0].backend_config.ascend.outputs[0].pth",
        ("unknown key", "found: 'pth'", "tensor, path and dtype", "did you mean path"),
    ),
    "wrong setting of a driver": (
        "backend_config:\n  command: {command: 5}\n",
        2,
        "backend_config.command.command",
        ("found: 5", "text or a list of text"),
    ),
    "missing operator": ("cases:\n  - dtypes: float16\n", 2, "cases[0]", ("op is missing",)),
    "negative size": (
        "cases:\n  - op: relu\n    shapes:\n      input0: [3, -1]\n",
        4,
        "cases[0].shapes.input0[1]",
        ("found: -1", "a whole number of at least 0"),
    ),
    "tensor name": (
        "cases:\n  - op: relu\n    shapes: {input7: [3]}\n",
        3,
        "cases[0].shapes",
        ("no tensor 'input7'", "input0, output0 and x"),
    ),
    "shape rule": (
        "cases:\n  - op: add\n    shapes: {input0: [3], input1: [4]}\n",
        3,
        "cases[0].shapes",
        ("do not broadcast",),
    ),
    "output shape": (
        "cases:\n  - op: relu\n    shapes: {input0: [3], output0: [4]}\n",
        3,
        "cases[0].shapes",
        ("output0 is given as [4], but the operator makes [3]",),
    ),
    "missing input": ("cases:\n  - op: add\n    shapes: {input0: [3]}\n", 3, "cases[0].shapes", ("input1",)),
    "unknown operator": (
        "cases:\n  - op: relu\n  - op: rleu\n",
        3,
        "cases[1].op",
        ("unknown operator 'rleu'", "did you mean relu"),
    ),
    "dtype of the operator, from the defaults": (
        "defaults:\n  dtypes: int64\ncases:\n  - op: relu\n",
        2,
        "defaults.dtypes",
        ("relu does not take int64", "float16, float32 and int8"),
    ),
    "dtype that is none": (
        "cases:\n  - op: relu\n    dtypes: [16]\n",
        3,
        "cases[0].dtypes[0]",
        ("found: 16", "a dtype name"),
    ),
    "attribute type": (
        "cases:\n  - op: add\n    attributes: {alpha: one}\n",
        3,
        "cases[0].attributes",
        ("attribute 'alpha' is 'one'", "it takes float"),
    ),
    "attribute choice": (
        "cases:\n  - op: add\n    attributes: {mode: left}\n",
        3,
        "cases[0].attributes",
        ("one of 'up', 'down'",),
    ),
    "attribute name": (
        "cases:\n  - op: add\n    attributes: {alhpa: 1}\n",
        3,
        "cases[0].attributes",
        ("did you mean alpha",),
    ),
    "bool as a number": (
        "cases:\n  - op: add\n    attributes: {alpha: true}\n",
        3,
        "cases[0].attributes",
        ("True",),
    ),
    "tolerance": (
        "cases:\n  - op: relu\n    rtol: .nan\n",
        3,
        "cases[0].rtol",
        ("finite number of at least 0",),
    ),
    "tolerance table": ("tolerances:\n  dtypes: {float61: {rtol: 1}}\n", 1, "tolerances", ("float61",)),
    "python tag": (
        "cases: !!python/object/apply:os.system ['touch owned']\n",
        1,
        "cases",
        ("tags are not allowed", "os.system"),
    ),
    "own tag": ("cases: !include x\n", 1, "cases", ("tags are not allowed", "!include")),
    "not YAML": ("cases:\n  - op: relu\n   - op: add\n", 3, "", ("this is not YAML",)),
    "control character": ("cases: \0\n", None, "", ("this is not YAML",)),
    "unset variable": (
        "cases:\n  - op: ${OPTEST_NOWHERE}\n",
        2,
        "cases[0].op",
        ("OPTEST_NOWHERE is not set", ":-"),
    ),
    "strange variable": ("cases:\n  - op: ${a b}\n", 2, "cases[0].op", ("not a variable", "$${")),
    "key twice": ("cases:\n  - op: relu\n    op: add\n", 3, "cases[0].op", ("twice", "line 2")),
    "a number as key": ("1: 2\n", 1, "", ("a key must be text",)),
    "endless alias": ("backend: &a [*a]\n", 1, "backend[0]", ("refers to itself",)),
    "not a mapping": ("- relu\n", 1, "", ("found: ['relu']", "a mapping")),
    "missing include": ("include: nowhere.yaml\n", 1, "include", ("no such file", "nowhere.yaml")),
    "option": ("options: {workers: 0}\n", 1, "options.workers", ("found: 0", "at least 1")),
    "suite": ("suite: bulitin\n", 1, "suite", ("found: 'bulitin'", '"builtin"')),
    "generator that is not there": (
        "cases:\n  - op: relu\n    generator: optest.generators:RandomTensor\n",
        3,
        "cases[0].generator",
        ("unknown generator", "did you mean RandomTensorGenerator"),
    ),
    "dotted path": (
        "cases:\n  - op: relu\n    generator: nowhere\n",
        3,
        "cases[0].generator",
        ("a dotted path module:name",),
    ),
}


@pytest.mark.parametrize(("text", "line", "key", "told"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_placed_and_explained(
    plan_file: Write, text: str, line: int | None, key: str, told: tuple[str, ...]
) -> None:
    file = plan_file(text)
    with pytest.raises(PlanError) as caught:
        list(load(resolve(plan=file)))
    error = caught.value
    assert (error.line, error.key) == (line, key)
    assert str(error).startswith(f"{file}:{line}: " if line else f"{file}: ")
    for part in told:
        assert part in str(error)
    assert error.exit_code == 2


def test_an_alias_bomb_is_refused(plan_file: Write) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(PlanError, match="more than 1,000,000 values"):
        resolve(plan=plan_file("\n".join(lines)))


def test_nesting_without_end_is_refused(plan_file: Write) -> None:
    with pytest.raises(PlanError, match="nested more than 100 deep"):
        resolve(plan=plan_file("[" * 100_000))


def test_a_missing_file_and_one_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot read the plan: No such file"):
        resolve(plan=tmp_path / "nowhere.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"cases: \xff\xfe")
    with pytest.raises(PlanError, match="not UTF-8"):
        resolve(plan=binary)


def test_plans_that_include_each_other(plan_file: Write) -> None:
    plan_file("include: b.yaml\n", "a.yaml")
    plan_file("cases: []\ninclude:\n  - a.yaml\n", "b.yaml")
    with pytest.raises(PlanError, match=r"a\.yaml → b\.yaml → a\.yaml") as caught:
        resolve(plan=plan_file("include: a.yaml\n", "top.yaml"))
    assert (caught.value.line, caught.value.key) == (3, "include[0]")
    assert caught.value.file.endswith("b.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "cannot read the plan: Too many levels of symbolic links"), ("include: ring\n", "no such file")],
    ids=["plan", "include"],
)
def test_links_that_form_a_ring(plan_file: Write, tmp_path: Path, text: str | None, words: str) -> None:
    ring = tmp_path / "ring"
    ring.symlink_to(ring)
    with pytest.raises(PlanError, match=words):
        list(load(resolve(plan=ring if text is None else plan_file(text))))


def test_a_mistake_in_an_include_names_the_included_file(plan_file: Write) -> None:
    plan_file("cases:\n  - op: relu\n    dtypes: int64\n", "part.yaml")
    with pytest.raises(PlanError, match=r"part\.yaml:3: cases\[0\]\.dtypes"):
        list(load(resolve(plan=plan_file("include: part.yaml\n"))))
