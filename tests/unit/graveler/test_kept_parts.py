"""The parts of a completed upload stay with its object, wherever versioning takes it; forged ones are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from dumped_lake import another_installation, dump, restore
from graveler_service import Service, reason_of
from lake import entry

from tarn.client.graveler import GravelerClient
from tarn.core.entry import Checksum, pack, unpack
from tarn.core.errors import Reason
from tarn.core.levels import LEVEL_FIRST, FeatureGate
from tarn.core.part_list import PART_LIST_BYTES_MAX, PartList, parts_of
from tarn.gate.access import Access
from tarn.rpc.client.inprocess import InProcessTransport
from tarn_graveler.application import endpoints_of

SIZES = [5 << 20, 5 << 20, 9]
PARTS = PartList.of(SIZES, "CRC32", [b"aaaa", b"bbbb", b"cccc"])


async def complete(service: Service, kept: bytes, path: str = "big") -> str:
    """Completes an upload of `SIZES`; returns its id."""
    graveler, admin = service.graveler, service.admin
    upload = await graveler.create_upload(admin, "lake", "main", path, template=entry(0))
    begun = await graveler.begin_complete_upload(admin, "lake", upload.upload_id, bytes(32))
    made = replace(
        unpack(service.entry(sum(SIZES), upload.upload_id)),
        address=upload.address,
        etag_parts=len(SIZES),
        checksums=(Checksum("CRC32", "AAAAAA==-3", composite=True),),
    )
    claim = (upload.upload_id, begun.claim, pack(made))
    try:
        await graveler.finish_complete_upload(admin, "lake", *claim, parts=kept)
    except Exception:
        await graveler.reopen_upload(admin, "lake", upload.upload_id, begun.claim)
        raise
    return upload.upload_id


async def kept_at(service: Service, ref: str) -> PartList | None:
    found = await service.graveler.lookup(service.admin, "lake", ref, "big")
    return parts_of(unpack(found.entry))


async def test_parts_stay_through_commits_merges_and_dumps(
    service: Service, tmp_path: Path
) -> None:
    graveler, admin = service.graveler, service.admin
    await graveler.create_branch(admin, "lake", "dev", "main")
    await service.put("other", 7, "dev")
    await graveler.create_commit(admin, "lake", "dev", "other")
    upload_id = await complete(service, PARTS.encode())
    assert await kept_at(service, "main") == PARTS
    answer = await graveler.begin_complete_upload(admin, "lake", upload_id, bytes(32))
    assert parts_of(unpack(answer.completed_entry)) == PARTS
    made = await graveler.create_commit(admin, "lake", "main", "big")
    await graveler.merge(admin, "lake", "dev", "main")
    for ref in ("main@", made.commit.commit_id, "dev@"):
        assert await kept_at(service, ref) == PARTS
    await graveler.revert(admin, "lake", "main", made.commit.commit_id)
    await graveler.cherry_pick(admin, "lake", "main", made.commit.commit_id)
    assert await kept_at(service, "main@") == PARTS
    await dump(service, tmp_path / "dump")
    async with another_installation(service, tmp_path / "other") as restored:
        await restore(restored, tmp_path / "dump")
        assert await kept_at(restored, "main") == PARTS


async def test_the_same_object_is_no_change_whether_its_parts_are_kept_or_not(
    service: Service,
) -> None:
    graveler, admin = service.graveler, service.admin
    await complete(service, b"")
    await graveler.create_commit(admin, "lake", "main", "as an earlier release wrote it")
    await complete(service, PARTS.encode())
    assert await reason_of(graveler.create_commit(admin, "lake", "main", "again")) == (
        Reason.NOTHING_TO_COMMIT
    )


@pytest.mark.parametrize(
    "kept",
    [
        PartList.of([5 << 20, 5 << 20, 8]).encode(),
        PartList.of([5 << 20, (5 << 20) + 9]).encode(),
        PartList.of(SIZES, "SHA1", [bytes(20)] * 3).encode(),
        PARTS.encode()[:-1],
        PARTS.encode() + bytes(PART_LIST_BYTES_MAX),
        b"\0",
    ],
)
async def test_forged_parts_are_refused_and_nothing_is_staged(
    service: Service, kept: bytes
) -> None:
    assert await reason_of(complete(service, kept)) is Reason.INVALID_ARGUMENT
    found = service.graveler.lookup(service.admin, "lake", "main", "big")
    assert await reason_of(found) is Reason.ENTRY_NOT_FOUND


async def test_no_parts_are_kept_while_the_last_release_may_run(service: Service) -> None:
    graveler = replace(service.replica, features=FeatureGate.at(LEVEL_FIRST))
    access = Access(service.auth, service.clock)
    transport = InProcessTransport(endpoints_of(graveler, access), service.clock)
    old = replace(service, graveler=GravelerClient(transport))
    await complete(old, PARTS.encode())
    found = await service.graveler.lookup(service.admin, "lake", "main", "big")
    assert unpack(found.entry).parts == b""
    assert await reason_of(complete(old, b"\0", "forged")) is Reason.INVALID_ARGUMENT
    await transport.close()
