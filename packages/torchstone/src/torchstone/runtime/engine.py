"""The protocols of engines and executables, and the options of a compilation.

:mod:`.engines` has the engines that exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from ..sharding import Mesh
from .buffers import Buffer, BufferSpec

XlaValue = bool | int | float | str


@dataclass(frozen=True)
class CompileOptions:
    """The options of one compilation.

    ``xla``: XLA options by name, e.g. ``{"xla_cpu_enable_fast_math": True}``, which
    override the engine's defaults; an unknown one raises :class:`EngineError`.
    ``donate``: positions of arguments whose memory the execution may reuse. The call
    deletes the buffer passed there; imported memory is copied instead.
    ``updates``: pairs of an argument and a result of the same type. The argument is
    donated, and the result is written into its memory. ``mesh``: the mesh that the module is
    for. ``ranks``: how many ranks run the program together. ``save_memory``: order operations so
    that few values are alive at once; None means what the setting of that name says.
    """

    xla: Mapping[str, XlaValue] = field(default_factory=dict)
    donate: tuple[int, ...] = ()
    updates: tuple[tuple[int, int], ...] = ()
    mesh: Mesh | None = None
    ranks: int | None = None
    save_memory: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "xla", MappingProxyType(dict(sorted(self.xla.items()))))
        object.__setattr__(self, "donate", tuple(sorted(set(self.donate))))
        object.__setattr__(self, "updates", tuple(sorted(set(self.updates))))

    def __hash__(self) -> int:
        own = (self.donate, self.updates, self.mesh, self.ranks, self.save_memory)
        return hash((tuple(self.xla.items()), own))

    @property
    def consumed(self) -> frozenset[int]:
        """The positions of the arguments whose buffers the call deletes."""
        return frozenset(self.donate) | {argument for argument, _ in self.updates}


@runtime_checkable
class Executable(Protocol):
    """A compiled program. Calling it checks every argument against ``inputs``."""

    inputs: tuple[BufferSpec, ...]
    outputs: tuple[BufferSpec, ...]

    def __call__(self, *arguments: Any) -> list[Buffer]:
        """Run on Buffers, NumPy arrays, torch tensors or DLPack objects; may raise InputMismatch."""
        ...

    def run_torch(self, tensors: Sequence[Any]) -> list[Any]:
        """Run on torch tensors; the results are torch tensors."""
        ...

    def torch_call(
        self, static: Iterable[int] = (), *, guarded: bool = False
    ) -> Callable[[Sequence[Any]], list[Any]]:
        """Return a fast function of a list of torch tensors, which imports ``static`` arguments only once.

        ``guarded``: only the addresses of static arguments can change between calls.
        """
        ...


@runtime_checkable
class Engine(Protocol):
    """An object that compiles StableHLO programs.

    An engine may have an attribute ``channels_last``. If it is true, the engine computes convolutions with
    channels last, and needs no transposes for tensors in that order.
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
        """Import ``array`` as a buffer that this engine's executables take."""
        ...
