"""The registered drivers, and the choice of the driver for a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..dotted import load_object
from ..driver_settings import check_settings
from ..errors import RegistrationError, UnknownName, UsageError
from ..names import listing
from .driver import BackendDriver


@dataclass(frozen=True)
class Family:
    """Drivers named ``PREFIX:MEMBER``, which are made on demand; ``members`` are those to list.

    ``driver`` is a class that is called with the member's name, or its path ``module:class``, which is
    imported at the first use.
    """

    prefix: str
    driver: Callable[[str], BackendDriver] | str
    members: tuple[str, ...] = ()

    def make(self, member: str) -> BackendDriver:
        """Make the driver of one member."""
        make = load_object(self.driver, "driver") if isinstance(self.driver, str) else self.driver
        made: BackendDriver = make(member)
        return made


_BROUGHT = ("gpu", "npu")
"""Kinds whose drivers come with plugins, whether or not such a plugin is installed."""


class BackendManager:
    """Drivers by name, in the order of registration."""

    def __init__(self) -> None:
        self._drivers: dict[str, BackendDriver] = {}
        self._families: dict[str, Family] = {}

    def register(self, driver: BackendDriver) -> BackendDriver:
        """Add ``driver``. Raises :class:`RegistrationError` if it is not a driver or its name is taken."""
        if isinstance(driver, type) or not isinstance(driver, BackendDriver):
            raise RegistrationError(
                f"{driver!r} is not a driver",
                "register an instance: backend_manager.register(MyBackend())",
            )
        for field in ("kind", "name"):
            value = getattr(driver, field, None)
            if not (isinstance(value, str) and value):
                raise RegistrationError(f"{type(driver).__name__} needs a {field}: it is {value!r}")
        if isinstance(driver.chips, str) or not all(isinstance(chip, str) for chip in driver.chips):
            raise RegistrationError(f"the chips of {driver.name} are {driver.chips!r}; they must be a tuple")
        if driver.name in self._drivers:
            raise RegistrationError(
                f"the driver {driver.name!r} is registered already, by "
                f"{type(self._drivers[driver.name]).__qualname__}",
                "take another name, or unregister() the old one first",
            )
        self._drivers[driver.name] = driver
        return driver

    def register_family(self, family: Family) -> None:
        """Add a family, whose drivers are made when ``PREFIX:MEMBER`` is requested."""
        self._families[family.prefix] = family

    def unregister(self, name: str) -> None:
        """Remove the driver ``name``. Raises :class:`UnknownName` if there is none."""
        if self._drivers.pop(name, None) is None:
            raise UnknownName("driver", name, self._drivers)

    def drivers(self) -> tuple[BackendDriver, ...]:
        """Return every registered driver, then the members that families list."""
        made = (family.make(one) for family in self._families.values() for one in family.members)
        return (*self._drivers.values(), *made)

    def check_config(self, config: Mapping[str, Any], selected: BackendDriver) -> None:
        """Raise :class:`UsageError` for settings of an unknown driver, or with unknown keys.

        ``selected`` is the driver of the run, which a family may have made.
        """
        for name, settings in config.items():
            driver = selected if name == selected.name else self._drivers.get(name)
            if driver is None and name.partition(":")[0] not in self._families:
                raise UnknownName(
                    "driver in backend_config",
                    name,
                    dict.fromkeys(one.name for one in self.drivers()),
                    "OPTEST_PLUGINS, or an installed distribution, brings the drivers of plugins",
                )
            if driver is not None and driver.settings is not None:
                check_settings(name, settings, driver.settings)

    def select(self, kind_or_name: str, chip: str | None = None) -> BackendDriver:
        """Return the driver of that name, else the driver of that kind that fits ``chip`` best.

        A driver that lists the chip, in any letter case, fits better than one that accepts every chip. Raises
        :class:`UnknownName` for a name that is neither, and :class:`UsageError` if no driver of the kind has
        the chip or if several drivers fit equally well; the message lists the candidates.
        """
        driver = self._named(kind_or_name)
        if driver is not None:
            if chip is not None and not _fit(driver, chip):
                raise UsageError(
                    f"the driver {driver.name!r} does not know the chip {chip!r}; "
                    f"it has {listing(driver.chips)}"
                )
            return driver
        known = self.drivers()
        candidates = [one for one in known if one.kind == kind_or_name]
        if not candidates:
            if kind_or_name in _BROUGHT:
                raise UsageError(
                    f"no driver of kind {kind_or_name!r} is here: its drivers come with plugins",
                    "name your plugin's module in OPTEST_PLUGINS, or install it; `torch:cuda` and "
                    "other PyTorch devices have drivers already, see `optest backends`",
                )
            names = dict.fromkeys([*(one.name for one in known), *(one.kind for one in known)])
            raise UnknownName(
                "backend",
                kind_or_name,
                names,
                "`optest backends` shows every driver; plugins of OPTEST_PLUGINS and of installed "
                "distributions add more",
            )
        return _best(kind_or_name, candidates, chip)

    def _named(self, name: str) -> BackendDriver | None:
        prefix, colon, member = name.partition(":")
        if name not in self._drivers and colon and member and prefix in self._families:
            return self._families[prefix].make(member)
        return self._drivers.get(name)


def _fit(driver: BackendDriver, chip: str | None) -> int:
    """Return how well a driver fits a chip: 2 if it lists the chip, 1 if it accepts any, 0 if not at all."""
    if chip is None or not driver.chips:
        return 1
    return 2 if chip.casefold() in (one.casefold() for one in driver.chips) else 0


def _best(kind: str, candidates: list[BackendDriver], chip: str | None) -> BackendDriver:
    """Return the candidate that fits best. Raises :class:`UsageError` if none fits or several fit equally."""
    offers = listing([f"{one.name} ({listing(one.chips, last='or') or 'any chip'})" for one in candidates])
    best = max(_fit(one, chip) for one in candidates)
    if best == 0:
        raise UsageError(f"no driver of kind {kind!r} knows the chip {chip!r}; there are {offers}")
    fitting = [one for one in candidates if _fit(one, chip) == best]
    if len(fitting) > 1:
        wanted = f"kind {kind!r}" + (f" and chip {chip!r}" if chip else "")
        raise UsageError(
            f"{len(fitting)} drivers fit {wanted}: {offers}",
            "name one: --backend NAME" + ("" if chip else ", or give --chip"),
        )
    return fitting[0]


backend_manager = BackendManager()
"""The drivers of this process."""
