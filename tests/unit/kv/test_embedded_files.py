"""The file systems that the embedded store accepts, and the lock of its writers."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tarn.core.errors import Kind, TarnError
from tarn.kv.embedded import files, open_embedded

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /proc rw - proc proc rw
40 22 0:50 / /mnt/with\\040space rw - nfs4 server:/export rw
41 22 0:51 / /mnt/over rw - nfs server:/a rw
42 22 254:1 / /mnt/over rw - xfs /dev/vdb rw
43 22 0:52 / /home rw shared:2 master:1 - fuse.sshfs host: rw
44 43 254:3 / /home/local rw - btrfs /dev/vdc rw
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/lib/tarn", "ext4"),
        ("/mnt/with space/a", "nfs4"),
        ("/mnt/with", "ext4"),
        ("/mnt/over/a", "xfs"),
        ("/home/me", "fuse.sshfs"),
        ("/home/local/me", "btrfs"),
        ("/homely", "ext4"),
    ],
)
def test_innermost_and_latest_mount_holds_a_path(path: str, expected: str) -> None:
    assert files.filesystem_type(Path(path), MOUNTS) == expected


@pytest.mark.parametrize("found", ["nfs4", "cifs", "smb3", "9p", "fuse", "fuse.s3fs"])
async def test_network_file_systems_are_refused(
    found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 254:0 / / rw - {found} somewhere rw\n")
    monkeypatch.setattr(files, "_MOUNTS", mounts)
    with pytest.raises(TarnError, match=f"'{found}' is not local") as caught:
        await open_embedded(tmp_path / "kv.db")
    assert caught.value.kind is Kind.FAILED_PRECONDITION
    assert not (tmp_path / "kv.db").exists()


async def test_local_file_systems_are_accepted_without_a_list_of_mounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MOUNTS", tmp_path / "absent")
    await (await open_embedded(tmp_path / "kv.db")).close()


def test_lock_lets_one_in_at_a_time(tmp_path: Path) -> None:
    inside = 0
    seen: list[int] = []

    def work() -> None:
        nonlocal inside
        lock = files.WriteLock(tmp_path / "kv.db")
        for _ in range(100):
            with lock:
                inside += 1
                seen.append(inside)
                inside -= 1
        lock.close()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen == [1] * 300


def test_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, tarn.kv.embedded.files as files\n"
        "files.WriteLock(pathlib.Path(sys.argv[1])).__enter__()\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "kv.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        lock = files.WriteLock(tmp_path / "kv.db")
        entered = threading.Event()

        def enter() -> None:
            with lock:
                entered.set()

        waiter = threading.Thread(target=enter)
        waiter.start()
        assert not entered.is_set()
        holder.kill()
    waiter.join(30)
    assert entered.is_set()
    lock.close()
