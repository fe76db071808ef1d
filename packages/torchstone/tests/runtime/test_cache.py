"""The compilation cache: hits, bounds, damage, and directories that must not be used."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy
import pytest

from torchstone import runtime
from torchstone.config import override
from torchstone.errors import CacheWarning, EngineError
from torchstone.runtime import CompileOptions
from torchstone.runtime.cache import DiskCache, MemoryCache
from torchstone.runtime.pjrt import PjrtEngine

ADD = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %x, %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty cache directory, configured; counters start at zero."""
    runtime.reset_stats()
    with override(cache=True, cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


def run(text: str = ADD, options: CompileOptions | None = None) -> None:
    """Compile in an engine that has nothing in memory, and check one result."""
    x = numpy.array([1, 2], numpy.float32)
    (result,) = PjrtEngine().compile(text, options=options)(x)
    assert result.to_numpy().tolist() == [2, 4]


def counts() -> tuple[int, int, int]:
    found = runtime.stats()
    return found.compiles, found.disk_hits, found.disk_stores


def test_second_engine_reads_from_disk(folder: Path) -> None:
    run()
    assert counts() == (1, 0, 1)
    run()
    assert counts() == (1, 1, 1)
    assert os.stat(folder).st_mode & 0o777 == 0o700
    assert [os.stat(file).st_mode & 0o777 for file in folder.iterdir()] == [0o600]


def test_second_compilation_of_one_engine_is_from_memory(folder: Path) -> None:
    engine = PjrtEngine()
    engine.compile(ADD)
    engine.compile(ADD, input_names=["x"])
    assert counts() == (1, 0, 1)
    assert runtime.stats().memory_hits == 1
    engine.clear_memory_cache()
    engine.compile(ADD)
    assert counts() == (1, 1, 1)


def test_another_process_reads_from_disk(folder: Path) -> None:
    run()
    script = (
        "import numpy\nfrom torchstone import runtime\n"
        f"program = runtime.get_engine('pjrt', 'cpu').compile({ADD!r})\n"
        "print(program(numpy.array([1, 2], numpy.float32))[0].to_numpy().tolist())\n"
        "print(runtime.stats().compiles, runtime.stats().disk_hits)\n"
    )
    environment = {**os.environ, "TORCHSTONE_CACHE_DIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout == "[2.0, 4.0]\n0 1\n", done.stderr
    assert done.stderr == ""


def test_what_makes_another_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run()
    run(ADD.replace("%0", "%sum"))
    run(options=CompileOptions(xla={"xla_cpu_enable_fast_math": True}))
    run(options=CompileOptions(donate=(0,)))
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    run()
    monkeypatch.setattr("torchstone.runtime._jaxlib.versions", lambda: {"jaxlib": "99"})
    run()
    assert counts() == (6, 0, 6)


def test_disabled(folder: Path) -> None:
    with override(cache=False):
        run()
        run()
    assert counts() == (2, 0, 0)
    assert not folder.exists()


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign", "renamed", "link", "writable"])
def test_damaged_file_is_compiled_again(folder: Path, damage: str) -> None:
    run()
    (file,) = folder.iterdir()
    content = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        content[-1] ^= 1
        file.write_bytes(content)
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "foreign":
        file.write_bytes(b"MZ" + os.urandom(500))
    elif damage == "renamed":  # a whole file, of another program
        run(ADD.replace("%0", "%sum"))
        (other,) = set(folder.iterdir()) - {file}
        other.replace(file)
    elif damage == "link":
        file.rename(folder.parent / "elsewhere")
        file.symlink_to(folder.parent / "elsewhere")
    else:
        file.chmod(0o666)
    runtime.reset_stats()
    with pytest.warns(CacheWarning, match=r"is damaged; it is compiled again|is not used: cannot read"):
        run()
    assert counts()[:2] == (1, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run()
    assert counts()[:2] == (1, 1)


def test_image_that_xla_refuses(folder: Path) -> None:
    """The image's checksum is right, but this jaxlib cannot use it."""
    run()
    (file,) = folder.iterdir()
    cache = DiskCache(folder)
    header = cache.read(file.stem).partition(b"\n")[0]
    cache.write(file.stem, header + b"\nnot an executable", 1 << 20)
    with pytest.warns(CacheWarning, match="is damaged; it is compiled again"):
        run()
    assert counts()[0] == 2


def test_size_is_bounded_and_the_oldest_go_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    keys = [letter * 64 for letter in "abcd"]
    limit = 3 * 1200
    for age, key in enumerate(keys[:3]):
        assert cache.write(key, bytes(1000), limit)
        os.utime(tmp_path / "cache" / f"{key}.xla", (age, age))
    assert cache.read(keys[0]) == bytes(1000)  # reading makes it recently used, so it is no longer the oldest
    assert cache.write(keys[3], bytes(1000), limit)
    assert [cache.read(key) is not None for key in keys] == [True, False, True, True]
    assert not cache.write("e" * 64, bytes(5000), limit)
    assert sum(file.stat().st_size for file in (tmp_path / "cache").iterdir()) <= limit


def test_files_are_not_looked_at_while_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    scandir = os.scandir

    def counting(folder: Any) -> Any:
        looks.append(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", counting)
    cache = DiskCache(tmp_path / "cache")
    for number in range(100):
        assert cache.write(f"{number:064}", bytes(1000), 400 * 1200)
    assert len(looks) <= 3
    for number in range(1000):
        assert cache.write(f"{number:064}", bytes(1000), 400 * 1200)
        if number % 50 == 0:
            assert sum(file.stat().st_size for file in (tmp_path / "cache").iterdir()) <= 400 * 1200
    assert len(looks) < 500


def test_full_disk_is_one_warning_and_leaves_nothing(
    folder: Path, largest_file: Callable[[int], AbstractContextManager[None]]
) -> None:
    engine = PjrtEngine()
    with largest_file(100):
        with pytest.warns(CacheWarning) as caught:
            engine.compile(ADD)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            engine.compile(ADD.replace("%0", "%sum"))
    assert len(caught) == 1
    assert "is not used: cannot write" in str(caught[0].message)
    assert "TORCHSTONE_CACHE_DIR" in str(caught[0].message)
    assert counts() == (2, 0, 0)
    assert list(folder.iterdir()) == []


def test_read_only_directory_is_read_and_one_warning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of the cache are used; programs that it cannot store are still compiled."""
    run()
    kept = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    system_open = os.open

    def read_only(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return system_open(path, flags, *rest, **options)

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", read_only)
    monkeypatch.setattr(os, "utime", refused)
    runtime.reset_stats()
    run()
    assert counts() == (0, 1, 0)
    engine = PjrtEngine()
    with pytest.warns(CacheWarning, match=r"is not used: cannot write: Read-only file system") as caught:
        engine.compile(ADD.replace("stablehlo.add", "stablehlo.multiply"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.compile(ADD.replace("stablehlo.add", "stablehlo.subtract"))
    assert len(caught) == 1
    assert counts() == (2, 1, 0)
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == kept


def test_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with override(cache_dir=tmp_path / "file" / "cache"), pytest.warns(CacheWarning) as caught:
        run()
    assert len(caught) == 1
    assert "Not a directory" in str(caught[0].message)


@pytest.mark.parametrize(
    ("unsafe", "message"),
    [
        ("writable", r"others can write to it \(mode 777\)"),
        ("foreign", "it belongs to user .*, not to you"),
        ("link", "is not used: cannot"),
    ],
)
def test_unsafe_directory_is_not_used(
    folder: Path, unsafe: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    if unsafe == "writable":
        folder.chmod(0o777)
    elif unsafe == "foreign":
        monkeypatch.setattr(os, "getuid", lambda: os.stat(folder).st_uid + 1)
    else:
        folder.rename(folder.parent / "elsewhere")
        folder.symlink_to(folder.parent / "elsewhere")
    runtime.reset_stats()
    with pytest.warns(CacheWarning, match=message) as caught:
        run()
    assert len(caught) == 1
    assert counts() == (1, 0, 0)
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_several_threads_compile_once(folder: Path) -> None:
    engine = PjrtEngine()
    start = threading.Barrier(4)

    def work(_: int) -> list[float]:
        start.wait()
        (result,) = engine.compile(ADD)(numpy.array([1, 2], numpy.float32))
        return result.to_numpy().tolist()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [[2, 4]] * 4
    assert counts() == (1, 0, 1)
    assert runtime.stats().memory_hits == 3


def test_failure_reaches_every_caller_and_is_not_kept() -> None:
    cache: MemoryCache[int] = MemoryCache()
    inside, go = threading.Event(), threading.Event()

    def fail() -> int:
        inside.set()
        go.wait()
        raise EngineError("no")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get, "key", fail, 4)
        inside.wait()
        second = pool.submit(cache.get, "key", lambda: 1, 4)
        go.set()
        with pytest.raises(EngineError, match="no"):
            first.result()
        if second.exception() is None:  # it asked after the failure was forgotten
            assert second.result() == (1, False)
        else:
            assert isinstance(second.exception(), EngineError)
    assert cache.get("key", lambda: 2, 4)[0] in (1, 2)


def test_memory_is_bounded() -> None:
    cache: MemoryCache[int] = MemoryCache()
    for key in "abc":
        cache.get(key, lambda: 1, 2)
        cache.get("a", lambda: 1, 2)
    assert cache.get("a", lambda: 2, 2) == (1, True)
    assert cache.get("b", lambda: 2, 2) == (2, False)


def test_a_pipe_in_the_cache_is_a_damaged_file(folder: Path) -> None:
    """Opening a pipe would wait for a writer, which never comes."""
    run()
    [file] = folder.glob("*.xla")
    file.unlink()
    os.mkfifo(file)
    with pytest.warns(CacheWarning, match="is damaged; it is compiled again"):
        run()
    assert file.is_file()
