"""What an engine is: two protocols, and the options of a compilation. :mod:`.engines` has those there are."""

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
    """How a program is compiled.

    ``xla``: XLA options by name, e.g. ``{"xla_cpu_enable_fast_math": True}``,
    over the engine's defaults; an unknown one is an :class:`EngineError`.
    ``donate``: positions of arguments whose memory the execution may reuse; the
    buffer passed there is deleted by the call. Imported memory is copied instead.
    ``updates``: pairs of an argument and a result of the same type; the argument is
    donated, and the result is written into its memory. ``mesh``: the mesh that the module is for.
    ``ranks``: how many ranks run it together. ``save_memory``: order operations for few live values; None
    as the setting of that name says.
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
