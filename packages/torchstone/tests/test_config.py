"""Settings from code and environment, and what happens to wrong ones."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from torchstone import config
from torchstone.errors import ConfigError


def test_environment_is_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHSTONE_CACHE", "off")
    monkeypatch.setenv("TORCHSTONE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHSTONE_SPECIALIZATIONS", "3")
    monkeypatch.setenv("TORCHSTONE_WORKER_TIMEOUT_S", "1.5")
    found = config.load_from_environment()
    assert (found.cache, found.cache_dir, found.specializations, found.worker_timeout_s) == (
        False,
        tmp_path,
        3,
        1.5,
    )


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty path would be the current directory."""
    monkeypatch.delenv("TORCHSTONE_CACHE_DIR", raising=False)
    usual = config.load_from_environment()
    monkeypatch.setenv("TORCHSTONE_CACHE_DIR", "")
    monkeypatch.setenv("TORCHSTONE_SPECIALIZATIONS", "")
    assert config.load_from_environment() == usual


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("CACHE", "maybe", "TORCHSTONE_CACHE='maybe' is not a boolean"),
        ("SPECIALIZATIONS", "many", "TORCHSTONE_SPECIALIZATIONS='many' is not a number"),
        ("CACHE_MAX_BYTES", "-1", "TORCHSTONE_CACHE_MAX_BYTES='-1' is negative"),
        ("CACHE_MAX_BYTES", "9" * 5000, "is not a number"),
        ("WORKER_TIMEOUT_S", "nan", "TORCHSTONE_WORKER_TIMEOUT_S='nan' is not finite"),
        ("WORKER_TIMEOUT_S", "inf", "TORCHSTONE_WORKER_TIMEOUT_S='inf' is not finite"),
        ("CACHE_DIR", "~no-such-user/x", "begins with a user who has no home"),
    ],
)
def test_wrong_values_name_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(f"TORCHSTONE_{name}", value)
    with pytest.raises(ConfigError, match=message):
        config.load_from_environment()


def test_override_is_scoped_even_when_it_raises() -> None:
    before = config.config.fallback

    def fail() -> None:
        with config.override(fallback=not before) as inside:
            assert inside.fallback is not before
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert config.config.fallback is before


def test_override_refuses_unknown_settings() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting\(s\): falback"), config.override(falback=True):
        pass


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("tuning", "no", "tuning = 'no' is not True or False"),
        ("tuning", 3, "tuning = 3 is not True or False"),
        ("specializations", True, "specializations = True is not a whole number"),
        ("specializations", 2.5, "specializations = 2.5 is not a whole number"),
        ("tuning_budget_s", float("nan"), "tuning_budget_s = nan is not finite"),
        ("worker_timeout_s", -1, "worker_timeout_s = -1 is negative"),
        ("engine", None, "engine = None is not a string"),
        ("cache_dir", 3, "cache_dir = 3 is not a path"),
    ],
)
def test_a_value_of_another_type_changes_nothing(name: str, value: object, message: str) -> None:
    before = getattr(config, name)
    with pytest.raises(ConfigError, match=f"^{message}"):
        setattr(config, name, value)
    with pytest.raises(ConfigError, match=f"^{message}"), config.override(cache=False, **{name: value}):
        pass
    assert getattr(config, name) == before
    assert config.cache


def test_values_take_the_type_of_their_setting() -> None:
    with config.override(tuning_budget_s=2, cache_dir="~/somewhere", specializations=4.0):
        assert type(config.tuning_budget_s) is float
        assert config.cache_dir == Path.home() / "somewhere"
        assert type(config.specializations) is int


def test_every_setting_is_documented() -> None:
    for name, variable, _, text in config.describe():
        assert variable == f"TORCHSTONE_{name.upper()}"
        assert text.endswith(".")


def test_a_user_without_a_home_has_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """``expanduser`` leaves ``~`` where there is neither HOME nor an entry of the user, and raises."""

    def homeless(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("HOME", "XDG_CACHE_HOME", "TORCHSTONE_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "expanduser", homeless)
    found = config.load_from_environment().cache_dir
    assert (found.parent, found.name) == (Path(tempfile.gettempdir()), f"torchstone-cache-{os.getuid()}")


def test_settings_are_attributes_of_the_module() -> None:
    with config.override(specializations=3):
        config.specializations = 5
        assert config.config.specializations == config.specializations == 5
    with pytest.raises(ConfigError, match=r"unknown setting\(s\): specialisations"):
        config.specialisations = 4  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'specialisations'"):
        _ = config.specialisations
