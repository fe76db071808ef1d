"""How much memory the redirected code uses on each CUDA device, though all of it is really CPU memory.

Every storage that is put on a device (:mod:`.places`) is counted until it is freed, as CUDA's caching
allocator counts its blocks. Nothing is cached or reserved beyond that. The figures are exact for the tensors
that redirected calls made. Memory that C++ code allocates for itself (inside a kernel) is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator

_LARGE = 1 << 20
"""The size in bytes from which CUDA's allocator serves a request from its pool of large blocks."""


class Pool:
    """The bytes and the number of blocks in a pool: current, at their peak, and ever allocated."""

    __slots__ = ("bytes", "bytes_ever", "bytes_peak", "number", "number_ever", "number_peak")

    def __init__(self) -> None:
        self.bytes = self.bytes_peak = self.bytes_ever = 0
        self.number = self.number_peak = self.number_ever = 0

    def add(self, size: int) -> None:
        self.bytes += size
        self.bytes_ever += size
        self.number += 1
        self.number_ever += 1
        if self.bytes > self.bytes_peak:
            self.bytes_peak = self.bytes
        if self.number > self.number_peak:
            self.number_peak = self.number

    def remove(self, size: int) -> None:
        self.bytes -= size
        self.number -= 1

    def reset_peak(self) -> None:
        self.bytes_peak, self.number_peak = self.bytes, self.number

    def reset_ever(self) -> None:
        """Restart the totals of everything ever allocated from the blocks that are live now."""
        self.bytes_ever, self.number_ever = self.bytes, self.number

    def figures(self, of_bytes: bool) -> Iterator[tuple[str, int]]:
        """Yield each metric under CUDA's name with its value, of bytes or else of the number of blocks."""
        now, peak, ever = (
            (self.bytes, self.bytes_peak, self.bytes_ever)
            if of_bytes
            else (self.number, self.number_peak, self.number_ever)
        )
        yield from (("current", now), ("peak", peak), ("allocated", ever), ("freed", ever - now))


class Account:
    """The memory of one CUDA device."""

    __slots__ = ("all", "large", "small")

    def __init__(self) -> None:
        self.all, self.large, self.small = Pool(), Pool(), Pool()

    def add(self, size: int) -> None:
        self.all.add(size)
        (self.large if size >= _LARGE else self.small).add(size)

    def remove(self, size: int) -> None:
        self.all.remove(size)
        (self.large if size >= _LARGE else self.small).remove(size)

    def pools(self) -> tuple[tuple[str, Pool], ...]:
        """The pools under CUDA's names."""
        return ("all", self.all), ("large_pool", self.large), ("small_pool", self.small)
