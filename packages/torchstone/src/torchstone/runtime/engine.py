"""What an engine is: two protocols, the options of a compilation, and the way to get one.

The engines themselves are in :mod:`.pjrt`, :mod:`.reference`, :mod:`.iree` and :mod:`.plain_jax`.
"""

from __future__ import annotations

import pkgutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from ..config import config
from ..errors import ConfigError
from ..sharding import Mesh
from .buffers import Buffer, BufferSpec

XlaValue = bool | int | float | str


@dataclass(frozen=True)
class CompileOptions:
    """How a program is compiled.

    ``xla``: XLA options by name, e.g. ``{"xla_cpu_enable_fast_math": True}``,
    over the engine's defaults; an unknown one is an :class:`EngineError`.
    ``donate``: positions of arguments whose memory the execution may reuse; the
    buffer passed there is deleted by the call. Imported memory is copied instead.
    ``updates``: pairs of an argument and a result of the same type; the argument is
    donated, and the result is written into its memory. ``mesh``: the mesh that the module is for.
    """

    xla: Mapping[str, XlaValue] = field(default_factory=dict)
    donate: tuple[int, ...] = ()
    updates: tuple[tuple[int, int], ...] = ()
    mesh: Mesh | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "xla", MappingProxyType(dict(sorted(self.xla.items()))))
        object.__setattr__(self, "donate", tuple(sorted(set(self.donate))))
        object.__setattr__(self, "updates", tuple(sorted(set(self.updates))))

    def __hash__(self) -> int:
        return hash((tuple(self.xla.items()), self.donate, self.updates, self.mesh))

    @property
    def consumed(self) -> frozenset[int]:
        """The arguments whose buffers the call deletes."""
        return frozenset(self.donate) | {argument for argument, _ in self.updates}


@runtime_checkable
class Executable(Protocol):
    """A compiled program. Calling it checks every argument against ``inputs``."""

    inputs: tuple[BufferSpec, ...]
    outputs: tuple[BufferSpec, ...]

    def __call__(self, *arguments: Any) -> list[Buffer]:
        """Run on Buffers, NumPy arrays, torch tensors or DLPack objects; raises InputMismatch."""
        ...

    def run_torch(self, tensors: Sequence[Any]) -> list[Any]:
        """Run on torch tensors, giving torch tensors."""
        ...

    def torch_call(
        self, static: Iterable[int] = (), *, guarded: bool = False
    ) -> Callable[[Sequence[Any]], list[Any]]:
        """A fast function over lists of torch tensors that imports ``static`` arguments once.

        ``guarded``: nothing but their addresses can change between calls.
        """
        ...


@runtime_checkable
class Engine(Protocol):
    """Something that compiles StableHLO.

    An engine whose attribute ``channels_last`` is true computes convolutions with channels last, so that
    tensors in that order cost it no transposes.
    """

    name: str
    platform: str

    def compile(
        self,
        module: bytes | str,
        *,
        options: CompileOptions | None = None,
        input_names: Sequence[str] | None = None,
    ) -> Executable:
        """Compile a portable artifact, MLIR bytecode or MLIR text with a static ``@main``."""
        ...

    def import_array(self, array: Any) -> Buffer:
        """``array`` as a buffer that this engine's executables take."""
        ...


ENGINES = ("pjrt", "reference", "iree", "jax")
"""The names that :func:`get_engine` takes."""

_engines: dict[tuple[str, str, str], Engine] = {}
_engines_lock = threading.Lock()


def get_engine(name: str | None = None, device: str | None = None, plugin: str | None = None) -> Engine:
    """The engine ``name`` on ``device``; the same object for the same arguments.

    ``name`` is ``"pjrt"``, ``"reference"``, ``"iree"``, ``"jax"`` or ``"module:factory"``, ``device``
    a platform with an optional index (``"cpu"``, ``"cuda:1"``), ``plugin`` the path of a PJRT C-API
    library (without ``device``: its first device). What is None comes from
    :mod:`torchstone.config`. Raises
    :class:`ConfigError`, :class:`DeviceNotFound` or :class:`PluginError`.
    """
    name = config.engine if name is None else name
    if device is None:
        device = "" if plugin else config.device
    plugin = config.plugin if plugin is None else plugin
    with _engines_lock:
        key = (name, device, plugin)
        if key not in _engines:
            _engines[key] = _make_engine(name, device, plugin)
        return _engines[key]


def _make_engine(name: str, device: str, plugin: str) -> Engine:
    if name == "pjrt":
        from .pjrt import PjrtEngine

        return PjrtEngine(device, plugin)
    if name == "reference":
        from .reference import ReferenceEngine

        return ReferenceEngine()
    if name == "iree":
        from .iree import IreeEngine

        return IreeEngine()
    if name == "jax":
        from .plain_jax import JaxEngine

        return JaxEngine()
    if ":" in name:
        return _engine_of(name)
    raise ConfigError(f"unknown engine {name!r}", hint=f"engines: {', '.join(ENGINES)}, or module:factory")


def _engine_of(place: str) -> Engine:
    """What ``module:factory`` makes."""
    try:
        made = pkgutil.resolve_name(place)()
    except (Exception, SystemExit) as error:  # importing a module may run anything
        raise ConfigError(
            f"engine {place!r} cannot be loaded: {type(error).__name__}: {error}",
            hint="name a class or function as module:factory, in a module that Python finds (PYTHONPATH)",
        ) from error
    if not isinstance(made, Engine):
        raise ConfigError(
            f"engine {place!r} makes a {type(made).__name__}, which is not an engine",
            hint="an engine has name, platform, compile and import_array (docs: Engines and plugins)",
        )
    return made
