"""Which file systems a store may be on."""

import os
from pathlib import Path

import pytest

from tarn.block.local.mount import file_system_of, refuse_network
from tarn.core.errors import Kind, TarnError

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
40 22 0:35 / /mnt/share\\040one rw,relatime shared:2 master:1 - nfs4 server:/export rw,vers=4.2
41 22 0:36 / /mnt/ssh rw - fuse.sshfs me@host: rw
broken line
"""


@pytest.mark.parametrize(
    ("device", "kind"),
    [((254, 0), "ext4"), ((0, 35), "nfs4"), ((0, 36), "fuse.sshfs"), ((9, 9), None)],
)
def test_device_number_finds_the_type(device: tuple[int, int], kind: str | None) -> None:
    assert file_system_of(os.makedev(*device), MOUNTS) == kind


def test_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_network(tmp_path)
    monkeypatch.setattr("tarn.block.local.mount.file_system_of", lambda *_: "nfs4")
    with pytest.raises(TarnError, match="nfs4") as caught:
        refuse_network(tmp_path)
    assert caught.value.kind is Kind.FAILED_PRECONDITION
