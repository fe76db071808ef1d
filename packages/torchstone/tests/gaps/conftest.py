"""Fixtures: the surface of a few namespaces, read once, and a provider whose faults are known."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.gaps.compare import Comparison, compare
from torchstone.gaps.providers.module import ModuleProvider
from torchstone.gaps.surface import Surface, read_surface

FUNCTIONAL = "torch.nn.functional"


@pytest.fixture(scope="session")
def surface() -> Surface:
    """The surface of functions in Python and in C++, with and without stubs."""
    return read_surface(["torch.nn.functional", "torch.cuda", "torch.linalg"])


@pytest.fixture(scope="session")
def held(surface: Surface) -> Callable[..., Comparison]:
    """Compare a changed module with PyTorch: ``held(relu=mine)`` offers ``mine`` as PyTorch's ``relu``."""

    def against(**functions: Any) -> Comparison:
        shop = types.ModuleType("shop")
        vars(shop).update(vars(torch.nn.functional) | functions)
        for name in [name for name, function in functions.items() if function is None]:
            delattr(shop, name)
        apis = [surface.apis[f"{FUNCTIONAL}.{name}"] for name in functions]
        return compare(ModuleProvider({FUNCTIONAL: shop}), apis)

    return against
