"""Files appear whole or not at all; links, devices and pipes are written to, not replaced."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from optest.files import NewFile, check_writable, read_whole, write_whole

AS_USER = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")


def left(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def test_a_new_file_has_the_mode_that_the_umask_gives(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "new" / "file", b"content")
    finally:
        os.umask(before)
    assert (tmp_path / "new" / "file").read_bytes() == b"content"
    assert stat.S_IMODE((tmp_path / "new" / "file").stat().st_mode) == 0o640


def test_the_mode_of_the_file_before_stays(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    file.chmod(0o604)
    write_whole(file, b"after")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("after", 0o604)


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("before")
    (tmp_path / "link").symlink_to("there/file")
    (tmp_path / "new").symlink_to("there/not yet")
    for name in ("link", "new"):
        write_whole(tmp_path / name, b"after")
        assert (tmp_path / name).is_symlink()
    assert {one.name: one.read_text() for one in (tmp_path / "there").iterdir()} == {
        "file": "after",
        "not yet": "after",
    }


def test_a_device_keeps_its_place(tmp_path: Path) -> None:
    for device in (Path("/dev/null"), tmp_path / "link"):
        if device.parent == tmp_path:
            device.symlink_to("/dev/null")
        check_writable(device)
        write_whole(device, b"x" * 100_000)
        assert stat.S_ISCHR(device.stat().st_mode)
    assert left(tmp_path) == {"link"}


def test_a_pipe_gets_what_is_written(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"content")
    reader.join(30)
    assert found == [b"content"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("place", ["/dev/stdout", "/proc/self/fd/1", "link"])
def test_stdout_by_its_name_is_written_to_as_it_was_opened(tmp_path: Path, place: str) -> None:
    (tmp_path / "link").symlink_to("/dev/stdout")
    (tmp_path / "log").write_text("before ")
    code = f"from pathlib import Path; from optest.files import *; write_whole(Path({place!r}), b'after')"
    with open(tmp_path / "log", "ab") as log:
        subprocess.run([sys.executable, "-c", code], stdout=log, cwd=tmp_path, check=True)
    assert (tmp_path / "log").read_text() == "before after"


def test_what_raises_leaves_everything_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    with contextlib.suppress(ZeroDivisionError), NewFile(file) as new:
        new.file.write(b"after")
        raise ZeroDivisionError
    assert file.read_text() == "before"
    assert left(tmp_path) == {"file"}


@pytest.fixture
def bounded(largest_file: Callable[[int], AbstractContextManager[None]]) -> Iterator[None]:
    """Limit files to 64 KiB, as a full disk would."""
    with largest_file(1 << 16):
        yield


@pytest.mark.usefixtures("bounded")
def test_nothing_is_left_half_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    for name in ("file", "other"):
        with pytest.raises(OSError, match="File too large"):
            write_whole(tmp_path / name, b"x" * (1 << 20))
    assert left(tmp_path) == {"file"}
    assert (tmp_path / "file").read_text() == "before"


def test_a_full_device_is_an_error() -> None:
    with pytest.raises(OSError, match="No space left"):
        write_whole(Path("/dev/full"), b"x")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_folders_and_rings_of_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ring").symlink_to("ring")
    for place, error in ((tmp_path, "Is a directory"), (tmp_path / "ring", "symbolic links")):
        for write in (check_writable, lambda path: write_whole(path, b"x")):
            with pytest.raises(OSError, match=error):
                write(place)
    assert left(tmp_path) == {"ring"}


@AS_USER
def test_a_file_that_is_write_protected_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    file.chmod(0o444)
    with pytest.raises(PermissionError):
        write_whole(file, b"after")
    assert file.read_text() == "before"


def test_a_name_as_long_as_names_can_be(tmp_path: Path) -> None:
    write_whole(tmp_path / ("n" * 255), b"content")
    assert left(tmp_path) == {"n" * 255}


def test_a_file_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optest.files.MOST_BYTES", 1000)
    for place in ("/dev/zero", "/dev/full"):
        with pytest.raises(OSError, match="File too large"):
            read_whole(Path(place))
    (tmp_path / "file").write_bytes(bytes(1000))
    assert read_whole(tmp_path / "file") == bytes(1000)
