from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from stratified import stratified


def chosen(names: list[str], share: int = 3) -> list[str]:
    return stratified(names, share, name=str, stratum=lambda one: one[0])


NAMES = [f"{family}{number}" for family in "abc" for number in range(60)]


def test_a_new_case_changes_no_other_choice() -> None:
    before = chosen(NAMES)
    for position in (0, 70, len(NAMES)):
        after = chosen([*NAMES[:position], "a-new", *NAMES[position:]])
        assert [name for name in after if name != "a-new"] == before


def test_every_stratum_has_about_its_share() -> None:
    for family in "abc":
        assert 10 <= sum(name[0] == family for name in chosen(NAMES)) <= 30


def test_a_small_stratum_is_not_left_out() -> None:
    assert len(chosen(["a1", "b1", "c1"], share=1000)) == 3


@pytest.fixture
def folder(tmp_path: Path, repo: Path) -> Path:
    """A folder for tests that follow the repository's rules."""
    shutil.copy(repo / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = -m 'not conformance' --strict-markers\n"
        "markers =\n    conformance:\n    sampled(share):\n    kept(id):\n"
    )
    return tmp_path


def test_a_sampled_test_leaves_most_cases_to_the_full_run(folder: Path, repo: Path) -> None:
    (folder / "test_it.py").write_text(
        "import pytest\n\n"
        "@pytest.mark.sampled(4)\n@pytest.mark.parametrize('case', range(60))\ndef test_many(case): pass\n\n"
        "@pytest.mark.sampled(400)\n@pytest.mark.parametrize('case', range(2))\ndef test_few(case): pass\n\n"
        "def test_one(): pass\n"
    )
    taken, left = (collected(repo, folder, *words) for words in ([], ["-m", "conformance"]))
    assert len([name for name in taken if "many" in name]) in range(7, 25)
    assert len([name for name in taken if "few" in name]) == 1
    assert "test_it.py::test_one" in taken
    assert (len(taken) + len(left), taken & left) == (63, set())
    assert len(collected(repo, folder, "-k", "many")) == 60
    assert len(collected(repo, folder, "test_it.py::test_few")) == 2


def test_a_test_keeps_the_cases_that_it_names(folder: Path, repo: Path) -> None:
    text = (
        "import pytest\n\n"
        "@pytest.mark.kept('a-[1]', 'b-2')\n"
        "@pytest.mark.parametrize('number', ['[1]', '2'])\n@pytest.mark.parametrize('letter', 'ab')\n"
        "def test_many(letter, number): pass\n"
    )
    (folder / "test_it.py").write_text(text)
    taken, left = (collected(repo, folder, *words) for words in ([], ["-m", "conformance"]))
    assert taken == {"test_it.py::test_many[a-[1]]", "test_it.py::test_many[b-2]"}
    assert left == {"test_it.py::test_many[a-2]", "test_it.py::test_many[b-[1]]"}
    (folder / "test_it.py").write_text(text.replace("'b-2'", "'c-2', 'c-1'"))
    with pytest.raises(subprocess.CalledProcessError) as failed:
        collected(repo, folder)
    assert "test_it.py::test_many has no cases ['c-1', 'c-2'], which it keeps" in failed.value.stderr


def collected(repo: Path, folder: Path, *words: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *words]
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(repo / "tests/helpers")},
    )
    return {line for line in done.stdout.splitlines() if "::" in line}
