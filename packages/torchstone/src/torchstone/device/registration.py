"""Register the device with PyTorch, once per process."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from ..errors import DeviceNotFound
from ..runtime.torch_bridge import Placement, placements
from ..torch_internals import private_device
from . import autocast, events, kernels, lazy, random
from .operators import Operator
from .recurrent import COMPOSED
from .storage import DEVICE_TYPE
from .transfers import STORAGE_METHODS, placed, storage_on, to_cpu

_lock = threading.Lock()
_registered: list[Any] = []


def register() -> None:
    """Make ``pjrt`` a device of this process and ``torch.pjrt`` its module; a second call does nothing.

    Raises :class:`DeviceNotFound` if another package already uses PyTorch's one slot for such a device.
    """
    with _lock:
        if _registered:
            return
        taken = private_device.backend_name()
        if taken not in ("privateuseone", DEVICE_TYPE):
            raise DeviceNotFound(
                f'this process has the device "{taken}", and PyTorch has room for one device of its kind',
                hint=f'use "{DEVICE_TYPE}" in a process of its own',
            )
        from . import module

        private_device.setup(DEVICE_TYPE, module)
        registrations = private_device.Registrations()
        _registered.append(registrations)
        _add_kernels(registrations)
        private_device.storages_of(DEVICE_TYPE, storage_on, STORAGE_METHODS)
        private_device.dlpack_of(DEVICE_TYPE, to_cpu)
        private_device.answer_for_accelerator(module.ACCELERATOR)
        private_device.made_by(DEVICE_TYPE, random.Generator)
        private_device.made_by(DEVICE_TYPE, events.Event, default=DEVICE_TYPE)
        private_device.made_by(DEVICE_TYPE, events.Stream, default=DEVICE_TYPE)
        private_device.compiled_by(DEVICE_TYPE, "torchstone")
        register_optimizer_step_post_hook(lazy.run_after_step)
        placements[DEVICE_TYPE] = Placement(to_cpu, partial(placed, fresh=True))


def _add_kernels(registrations: private_device.Registrations) -> None:
    registrations.add_for_the_rest(_any_operator)
    registrations.add_for_the_rest(torch.library.fallthrough_kernel, private_device.AUTOCAST_KEY)
    for key in kernels.OTHER_KINDS:
        registrations.add_for_the_rest(kernels.refuse_kind, key)
    for name, cast in autocast.kernels():
        registrations.add(name, cast, private_device.AUTOCAST_KEY)
    for name, override in kernels.OVERRIDES.items():
        registrations.add(name, override)
    for name, host in kernels.CPU_KERNELS.items():
        registrations.add(name, host, "CPU")
    for name in private_device.operator_names():
        kernel = kernels.KERNELS.get(name)
        if kernel is not None:
            registrations.add(name, kernel)
        elif kernels.is_program(name):
            operator = Operator(name, composed=COMPOSED.get(name))
            elsewhere = private_device.takes_device(name)
            registrations.add(name, kernels.where_asked(operator) if elsewhere else operator.__call__)


def _any_operator(overload: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operator without a kernel of its own: one outside ATen, or one that PyTorch would compose."""
    operator = _others.setdefault(overload, Operator(overload.name(), overload))
    return operator(*args, **kwargs)


_others: dict[Any, Operator] = {}
