"""``patched:PACKAGE`` finds what a package that changes PyTorch has broken, and nothing else."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gaps.packages.seeded import FAULTS, WITH_TENSORS
from torchstone.errors import GapsError
from torchstone.gaps import processes
from torchstone.gaps.answers import GapKind, Status
from torchstone.gaps.compare import Comparison, compare
from torchstone.gaps.providers import make_provider
from torchstone.gaps.settings import find_api
from torchstone.gaps.surface import Api, read_surface, without_aliases

PACKAGES = Path(__file__).parent / "packages"
SCOPE = ("torch", "torch.Tensor", "torch.nn.Module", "torch.cuda")

Found = set[tuple[str, GapKind]]
Broken = Callable[[dict[str, str]], Found]


@pytest.fixture(scope="module")
def apis() -> list[Api]:
    return without_aliases(read_surface(SCOPE).apis.values())


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for packages, which is on the path beside the tests' own."""
    folder = tmp_path_factory.mktemp("packages")
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(PACKAGES)
        patched.syspath_prepend(folder)
        yield folder


def gaps_of(comparison: Comparison) -> Found:
    return {(gap.api.name, gap.kind) for gap in comparison.gaps()}


@pytest.fixture(scope="module")
def sound(apis: list[Api], packages: Path) -> Comparison:
    """The comparison of the package without faults."""
    return compare(make_provider("patched:stand_in"), apis)


@pytest.fixture(scope="module")
def broken(apis: list[Api], packages: Path, sound: Comparison) -> Broken:
    """Add faults to the package: ``broken({name: fault})`` returns the gaps that it did not have before."""
    known = gaps_of(sound)

    def find(faults: dict[str, str]) -> Found:
        name = f"broken_{len(list(packages.iterdir()))}"
        (packages / f"{name}.py").write_text(f"import stand_in, seeded\nseeded.seed({faults!r})\n")
        return gaps_of(compare(make_provider(f"patched:{name}"), apis)) - known

    return find


def replaced(comparison: Comparison) -> list[str]:
    """Return the functions and methods that the package replaces, and so could have broken."""
    return [
        name
        for name, finding in comparison.findings.items()
        if finding.answer.status is Status.WRAPS and finding.api.kind in ("function", "method")
    ]


GIVES_NOTHING = {
    *("torch.cuda.empty_cache", "torch.cuda.reset_peak_memory_stats", "torch.cuda.synchronize"),
    *("torch.cuda.Event.record", "torch.cuda.Event.synchronize", "torch.cuda.Event.wait"),
    *("torch.cuda.Stream.synchronize", "torch.cuda.Stream.wait_event", "torch.cuda.Stream.wait_stream"),
}
"""Names that return None anyway, so that the fault "gives nothing" changes nothing."""

CALLS = {
    "torch.Tensor.cuda": {"torch.Tensor.to"},
    "torch.nn.Module.cuda": {"torch.Tensor.cuda", "torch.Tensor.to"},
    "torch.nn.Module.to": {"torch.Tensor.to"},
    "torch.nn.Module.to_empty": {"torch.empty_like"},
    "torch.unravel_index": {"torch.tensor"},
    "torch.cuda.cudart": {"torch.cuda.is_initialized"},
    "torch.cuda.is_tf32_supported": {"torch.cuda.is_bf16_supported"},
    "torch.Tensor.index": {"torch.rand_like"},  # the method imports a module that reads this name
}
"""By name: the names that the package or PyTorch calls in it. A fault in one of those breaks it, too."""


def possible(name: str) -> list[str]:
    """Return the faults that make a difference for a name."""
    if name.startswith("torch.cuda."):
        kinds = [fault for fault in FAULTS if fault not in WITH_TENSORS]
    else:
        takes_one = name.startswith(("torch.Tensor.", "torch.nn.Module.")) or name.endswith("_like")
        kinds = [fault for fault in FAULTS if takes_one or fault != "writes"]
    none = {"gives nothing"} if name in GIVES_NOTHING else set()
    if "empty" in name:  # uninitialized memory has no right values
        none |= {"other values", "writes"}
    return [kind for kind in kinds if kind not in none]


def rounds(names: list[str], most: int) -> list[dict[str, str]]:
    """Distribute every possible fault of every name over packages with at most ``most`` faults each."""
    left = [(name, fault) for name in names for fault in possible(name)]
    random.Random(16).shuffle(left)
    made: list[dict[str, str]] = []
    while left:
        chosen: dict[str, str] = {}
        for name, fault in list(left):
            if name not in chosen and len(chosen) < most:
                chosen[name] = fault
                left.remove((name, fault))
        made.append(chosen)
    return made


def assert_found(faults: list[dict[str, str]], broken: Broken) -> None:
    seeded, missed, false = 0, [], []
    for one in faults:
        found = broken(one)
        names = {name for name, _ in found}
        seeded += len(one)
        missed += [item for item in one.items() if item[0] not in names]
        false += [(name, kind, one) for name, kind in found if not {name, *CALLS.get(name, ())} & one.keys()]
    assert len(missed) <= 0.05 * seeded, (seeded, missed)
    assert false == []


@pytest.mark.parametrize("count", [2, pytest.param(5, marks=pytest.mark.conformance)])
def test_seeded_faults_are_found_and_nothing_else(sound: Comparison, broken: Broken, count: int) -> None:
    names = replaced(sound)
    assert len(names) > 50
    assert_found(rounds(names, 16)[:count], broken)


@pytest.mark.conformance
def test_every_possible_fault_is_found_and_nothing_else(sound: Comparison, broken: Broken) -> None:
    assert_found(rounds(replaced(sound), 16), broken)


def test_what_a_package_leaves_alone_is_found(sound: Comparison) -> None:
    """The gaps are names that take a device but not CUDA, and parts of torch.cuda that do not work here."""
    gaps = gaps_of(sound)
    assert ("torch.asarray", GapKind.BEHAVIOUR) in gaps
    assert ("torch.cuda.mem_get_info", GapKind.UNPATCHED) in gaps
    of_its_own = [name for name in replaced(sound) if any(name == api for api, _ in gaps)]
    assert of_its_own == []
    assert "which it sends to cpu" in sound.compared
    assert sum(one.trial is not None for one in sound.findings.values()) > 1000


@pytest.fixture
def package(packages: Path) -> Callable[[str, str], str]:
    """Write a package with ``package(name, source)``; return the name of its provider."""

    def write(name: str, source: str) -> str:
        (packages / f"{name}.py").write_text(f"import torch\n{source}")
        return f"patched:{name}"

    return write


def gaps_at(provider: str, *names: str) -> dict[str, str]:
    """Descriptions of the gaps at some names."""
    found = compare(make_provider(provider), [find_api(name) for name in names])
    return {gap.api.name: gap.description for gap in found.gaps()}


def test_a_package_without_cuda_is_called_on_the_cpu(package: Callable[[str, str], str]) -> None:
    """Only the name that it changed is a gap. It does not offer torch.cuda, so that is not compared."""
    provider = package("quicker", "torch.relu = lambda input: input.clamp(min=0.5)\n")
    names = ("torch.relu", "torch.abs", "torch.cuda.memory_allocated", "torch.asarray")
    assert gaps_at(provider, *names) == {"torch.relu": "result: other values"}


def test_a_class_that_becomes_a_function_is_found(package: Callable[[str, str], str]) -> None:
    provider = package("flat", "made = torch.Generator\ntorch.Generator = lambda *args, **kwargs: made()\n")
    (description,) = gaps_at(provider, "torch.Generator").values()
    assert "isinstance does not work with it" in description


@pytest.mark.conformance
def test_a_call_that_ends_its_process_or_hangs_is_a_finding(
    package: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls that follow one that aborts or hangs are still made."""
    monkeypatch.setattr(processes, "CALL_SECONDS", 10.0)
    provider = package(
        "rude",
        "import os, time\n"
        "torch.abs = lambda input: os.abort()\n"
        "torch.ceil = lambda input: os._exit(3)\n"
        "torch.floor = lambda input: time.sleep(600)\n"
        "torch.relu = lambda input: input\n"
        "torch.sign = lambda input: print('nonsense') or input\n",
    )
    assert gaps_at(
        provider, "torch.abs", "torch.ceil", "torch.floor", "torch.neg", "torch.relu", "torch.sign"
    ) == {
        "torch.abs": "works there, raises no result: the process ended with signal SIGABRT here",
        "torch.ceil": "works there, raises no result: the process ended with exit code 3 here",
        "torch.floor": "works there, raises no result: it did not return within 10 s here",
        "torch.sign": "result: other values",
    }


def test_the_reference_side_never_sees_the_package(package: Callable[[str, str], str]) -> None:
    """This holds even if the package breaks the functions that make arguments and read results."""
    provider = package(
        "broken_tools",
        "broken = lambda *args, **kwargs: torch.zeros(7)\n"
        "for name in ('clone', 'detach', 'cpu', 'to', 'numpy', 'reshape'):\n"
        "    setattr(torch.Tensor, name, broken)\n"
        "torch.linspace = torch.arange = torch.full = broken\n",
    )
    found = gaps_at(provider, "torch.neg", "torch.sin", "torch.linspace", "torch.Tensor.clone")
    assert found.keys() == {"torch.linspace", "torch.Tensor.clone"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(0)\n", "SystemExit: 0"),
        ("import os\nos._exit(0)\n", "the process ended with exit code 0"),
        ("import gone\n", "ModuleNotFoundError: No module named 'gone'"),
    ],
)
def test_a_package_that_cannot_be_imported_is_one_clear_error(
    package: Callable[[str, str], str], source: str, says: str
) -> None:
    provider = make_provider(package(f"fails_{abs(hash(source))}", source))
    with pytest.raises(GapsError, match="cannot be imported in a process of its own") as caught:
        compare(provider, [find_api("torch.abs")])
    assert caught.value.message.endswith(says)


def test_a_package_that_this_process_has_imported_is_refused() -> None:
    with pytest.raises(GapsError, match="json is imported in this process"):
        make_provider("patched:json")
    for name in ("no_such_package", "no_such.package", ""):
        with pytest.raises(GapsError, match="there is no package"):
            make_provider(f"patched:{name}")


def test_the_command_analyzes_a_package(packages: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torchstone", "gaps", "check", "--json"),
            *("--provider", "patched:stand_in", "--namespace", "torch.cuda"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(PACKAGES)},
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["provider"] == "patched:stand_in"
    assert found["called"] > 20
    assert any("torch.cuda.mem_get_info (unpatched)" in one for one in found["problems"])
    assert not any("torch.cuda.memory_allocated " in one for one in found["problems"])
