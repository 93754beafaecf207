"""Paths that other users chose become files below a folder, or are refused one by one."""

import errno
import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from tarn_cli.objects.local_files import FileRefusedError, files_below, new_file


def write(folder: Path, path: str, data: bytes = b"new") -> None:
    with new_file(folder, path.split("/")) as file:
        file.write(data)


def listed(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_file_appears_whole_with_its_folders(tmp_path: Path) -> None:
    write(tmp_path / "new", "a/b/c.csv")
    assert (tmp_path / "new/a/b/c.csv").read_bytes() == b"new"
    with suppress(ZeroDivisionError), new_file(tmp_path / "new", ["a", "b", "c.csv"]) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert (tmp_path / "new/a/b/c.csv").read_bytes() == b"new"
    assert listed(tmp_path) == ["new", "new/a", "new/a/b", "new/a/b/c.csv"]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/abs",
        "a//b",
        "a/",
        "..",
        "../x",
        "a/../../x",
        ".",
        "./x",
        "a/./x",
        "a\0b",
        "x" * 256,
        "y" * 256 + "/z",
    ],
)
def test_a_path_that_no_file_can_have_is_refused(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "below"
    with pytest.raises(FileRefusedError):
        write(folder, path)
    assert [name for name in listed(tmp_path) if name not in {"below", "below/a"}] == []


def test_the_longest_name_is_no_problem(tmp_path: Path) -> None:
    write(tmp_path, "x" * 255)
    assert listed(tmp_path) == ["x" * 255]


def test_nothing_is_written_through_a_symbolic_link(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "secret").write_bytes(b"old")
    (folder / "to-folder").symlink_to(outside)
    (folder / "to-file").symlink_to(outside / "secret")
    (folder / "to-nowhere").symlink_to(outside / "made")
    (folder / "circle").symlink_to(folder / "circle")
    for path in ("to-folder/x", "to-folder/a/x", "to-file", "to-nowhere", "circle", "circle/x"):
        with pytest.raises(FileRefusedError, match="symbolic link"):
            write(folder, path)
    assert listed(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"old"


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write(tmp_path / "link", "a")
    assert listed(tmp_path / "real") == ["a"]


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"old")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path, why in (
            ("pipe", "is a named pipe"),
            ("socket", "is a socket"),
            ("folder", "is a folder"),
            ("pipe/x", "is a named pipe"),
            ("file/x", "is a file"),
        ):
            with pytest.raises(FileRefusedError, match=why):
                write(tmp_path, path)
    with pytest.raises(FileRefusedError, match="is a device"):
        write(Path("/dev"), "null")
    write(tmp_path, "file")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_something_that_comes_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    opened = new_file(tmp_path, ["a"])
    opened.__enter__().write(b"new")
    (tmp_path / "a").mkdir()
    with pytest.raises(FileRefusedError, match="is a folder"):
        opened.__exit__(None, None, None)
    assert listed(tmp_path) == ["a"]


def test_a_full_disk_is_no_matter_of_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.mkdir", full)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path, "a/b")


def test_every_file_is_found_or_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"12345")
    (tmp_path / "a.csv").write_bytes(b"1")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "nowhere").symlink_to(tmp_path / "none")
    (tmp_path / "up").symlink_to(tmp_path)
    (tmp_path / "file").symlink_to(tmp_path / "a" / "x")
    (tmp_path / "null").symlink_to("/dev/null")
    found = {path.relative_to(tmp_path).as_posix(): what for path, what in files_below(tmp_path)}
    assert found == {
        "a.csv": 1,
        "a/x": 5,
        "circle": "is a symbolic link in a circle",
        "file": 5,
        "nowhere": "leads nowhere, or was removed",
        "null": "is a symbolic link to a device",
        "pipe": "is a named pipe",
        "up": "is a symbolic link to a folder",
    }


def test_a_folder_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    real = os.listdir

    def listing(path: str | Path) -> list[str]:
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path)

    monkeypatch.setattr("os.listdir", listing)
    assert list(files_below(tmp_path)) == [(tmp_path / "closed", "permission denied")]
