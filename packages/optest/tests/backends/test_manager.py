"""Registering and selecting drivers."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from optest.backends import BackendDriver, BackendManager, Family, ProgramFailed, backend_manager
from optest.errors import RegistrationError, UnknownName, UsageError


class Driver(BackendDriver):
    def __init__(self, kind: str = "gpu", name: str = "one", chips: tuple[str, ...] = ()) -> None:
        self.kind, self.name, self.chips = kind, name, chips

    def run(self, case: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        return inputs


def manager(*drivers: BackendDriver) -> BackendManager:
    made = BackendManager()
    for one in drivers:
        made.register(one)
    return made


def test_built_in_drivers() -> None:
    names = [one.name for one in backend_manager.drivers()]
    assert {"stub", "numpy", "command", "ascend", "http"} <= set(names)
    assert backend_manager.select("npu", "Ascend310B").name == "ascend"


def test_a_name_wins_over_a_kind() -> None:
    drivers = manager(Driver("gpu", "a"), Driver("a", "b"))
    assert drivers.select("a").name == "a"
    assert drivers.select("gpu").name == "a"


def test_a_kind_is_selected_by_chip() -> None:
    drivers = manager(
        Driver(name="cuda", chips=("a100", "h100")), Driver(name="rocm", chips=("mi300",)), Driver(name="any")
    )
    assert drivers.select("gpu", "A100").name == "cuda"
    assert drivers.select("gpu", "mi300").name == "rocm"
    assert drivers.select("gpu", "b200").name == "any"


def test_what_does_not_fit_says_what_there_is() -> None:
    drivers = manager(Driver(name="cuda", chips=("a100", "h100")), Driver(name="rocm", chips=("mi300",)))
    with pytest.raises(
        UsageError, match=r"'gpu' knows the chip 'a10'; there are cuda \(a100 or h100\) and rocm"
    ):
        drivers.select("gpu", "a10")
    with pytest.raises(UsageError, match="'cuda' does not know the chip 'mi300'; it has a100 and h100"):
        drivers.select("cuda", "mi300")
    with pytest.raises(
        UsageError, match=r"2 drivers fit kind 'gpu': cuda .*\n.*--backend NAME, or give --chip"
    ):
        drivers.select("gpu")
    with pytest.raises(UnknownName, match=r"unknown backend 'cudda': did you mean cuda\?"):
        drivers.select("cudda")
    with pytest.raises(UnknownName, match="unknown backend 'mtia': there are cuda, rocm and gpu"):
        drivers.select("mtia")


def test_families_make_members_on_demand() -> None:
    drivers = manager(Driver())
    drivers.register_family(Family("torch", lambda name: Driver("torch", f"torch:{name}"), ("cpu",)))
    assert [one.name for one in drivers.drivers()] == ["one", "torch:cpu"]
    assert drivers.select("torch:cuda:1").name == "torch:cuda:1"
    assert drivers.select("torch").name == "torch:cpu"


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        (Driver, "register an instance"),
        (Driver(kind=""), "needs a kind"),
        (Driver(name="one"), "'one' is registered already, by Driver"),
        (Driver(name="two", chips="a100"), "must be a tuple"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_registered(driver: Any, message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        manager(Driver()).register(driver)


def test_unregister_makes_room() -> None:
    drivers = manager(Driver())
    drivers.unregister("one")
    assert drivers.drivers() == ()
    with pytest.raises(UnknownName, match="unknown driver 'one'"):
        drivers.unregister("one")


def test_a_failure_crosses_processes_whole() -> None:
    failed = ProgramFailed("it died", signal="SIGSEGV", stderr_tail="last words")
    found = pickle.loads(pickle.dumps(failed))
    assert (str(found), vars(found)) == ("it died", vars(failed))


def test_a_kind_whose_drivers_come_with_plugins() -> None:
    with pytest.raises(UsageError, match="no driver of kind 'gpu' is here: its drivers come with plugins"):
        BackendManager().select("gpu", "a100")
