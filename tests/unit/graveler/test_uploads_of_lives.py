"""An upload ends with the branch on which it was begun: a later branch of the same name is another one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from graveler_service import Service, reason_of, running_service
from lake import MAIN, Lake, Running, entry, keep_tokens, reached
from lake_links import Bucket, issue, link, written
from lake_upload import Upload
from permits import permit_for

from tarn.core.errors import Reason
from tarn.core.levels import ALL_FEATURES, LEVEL_FIRST, FeatureGate
from tarn.kv.port import OutcomeUnknownError
from tarn_graveler.handlers.uploads import UploadHandler
from tarn_proto.graveler.v1 import upload_service_pb2 as pb
from tarn_proto.store.v1 import graveler_pb2 as store_pb

MANIFEST = bytes(32)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(tmp_path, store=Bucket) as made:
        yield made


async def recreate(service: Service, branch: str) -> None:
    await service.graveler.delete_branch(service.admin, "lake", branch)
    await service.graveler.create_branch(service.admin, "lake", branch, "main")


async def begin(service: Service, branch: str = "dev") -> pb.Upload:
    return await service.graveler.create_upload(
        service.admin, "lake", branch, "k", template=entry(0)
    )


def part(number: int) -> pb.UploadPart:
    return pb.UploadPart(part_number=number, attempt="a", size_bytes=1, md5=bytes(16))


Step = Callable[[Service, str], Awaitable[object]]

STEPS: dict[str, Step] = {
    "GetUpload": lambda s, upload_id: s.graveler.get_upload(s.admin, "lake", "dev", "k", upload_id),
    "RecordUploadPart": lambda s, upload_id: s.graveler.record_upload_part(
        s.admin, "lake", upload_id, part(1)
    ),
    "ListUploadParts": lambda s, upload_id: s.graveler.list_upload_parts(
        s.admin, "lake", upload_id
    ),
    "BeginCompleteUpload": lambda s, upload_id: s.graveler.begin_complete_upload(
        s.admin, "lake", upload_id, MANIFEST
    ),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
async def test_no_step_finds_an_upload_of_an_earlier_branch(service: Service, step: Step) -> None:
    await service.graveler.create_branch(service.admin, "lake", "dev", "main")
    upload_id = (await begin(service)).upload_id
    await step(service, upload_id)
    await recreate(service, "dev")
    assert await reason_of(step(service, upload_id)) is Reason.UPLOAD_NOT_FOUND
    await step(service, (await begin(service)).upload_id)


async def test_an_upload_of_an_earlier_branch_is_not_listed_and_can_be_aborted(
    service: Service,
) -> None:
    await service.graveler.create_branch(service.admin, "lake", "dev", "main")
    old = await begin(service)
    await recreate(service, "dev")
    new = await begin(service)
    listed = await service.graveler.list_uploads(service.admin, "lake", "dev")
    assert [each.upload_id for each in listed.uploads] == [new.upload_id]
    await service.graveler.abort_upload(service.admin, "lake", old.upload_id)


async def test_a_branch_that_was_made_again_after_the_claim_does_not_get_the_object(
    service: Service,
) -> None:
    await service.graveler.create_branch(service.admin, "lake", "dev", "main")
    upload = await begin(service)
    claim = (await STEPS["BeginCompleteUpload"](service, upload.upload_id)).claim  # type: ignore[attr-defined]
    await recreate(service, "dev")
    repository = await service.replicas.made[0].repositories.get("lake")
    packed = entry(1, upload.upload_id)
    finishing = service.replicas.made[0].uploads.finish_complete(
        repository, upload.upload_id, claim, packed
    )
    assert await reason_of(finishing) is Reason.UPLOAD_NOT_FOUND
    looking = service.graveler.lookup(service.admin, "lake", "dev", "k")
    assert await reason_of(looking) is Reason.ENTRY_NOT_FOUND


async def test_an_address_of_an_earlier_branch_is_not_linked(service: Service) -> None:
    await service.graveler.create_branch(service.admin, "lake", "other", "main")
    await service.graveler.set_default_branch(service.admin, "lake", "other")
    issued = await issue(service)
    await written(service, issued)
    await service.graveler.delete_branch(service.admin, "lake", "main")
    await service.graveler.create_branch(service.admin, "lake", "main", "other")
    assert await reason_of(link(service, issued.token)) is Reason.UPLOAD_NOT_FOUND


@pytest.fixture
async def bound(lake: Lake, upload: Upload) -> Upload:
    """An upload of the present life of `main`, whose completion has begun."""
    life = (await lake.graveler.branches.fresh(lake.main)).branch.incarnation

    def bind(record: store_pb.UploadRecord) -> None:
        record.branch_incarnation = life

    await lake.graveler.uploads._records.change(lake.repository, upload.upload_id, bind)
    return upload


async def recreate_main(lake: Lake) -> None:
    commit_id = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    await lake.graveler.branches.delete(lake.main, keep_tokens)
    await lake.graveler.branches.create(lake.main, commit_id)


async def test_a_branch_that_is_made_again_during_a_completion_does_not_get_the_object(
    lake: Lake, other: Lake, bound: Upload, running: Running
) -> None:
    read = lake.kv.hold("get_many", lake.branch_key)
    completion = running.start(bound.finish())
    await reached(read)  # the first read of the record, which decides nothing yet
    await recreate_main(other)
    read.open()
    assert await reason_of(completion) is Reason.UPLOAD_NOT_FOUND
    assert await other.get("k") is None


async def test_a_completion_that_may_have_been_staged_before_is_not_refused(
    lake: Lake, other: Lake, bound: Upload, running: Running
) -> None:
    """A commit may hold the object, and another branch that commit: the block must stay."""
    await bound.dies_after_its_row(running)
    await other.commit()
    await recreate_main(other)
    await bound.take_over(other)
    with pytest.raises(OutcomeUnknownError):
        await bound.finish(other)


@pytest.mark.parametrize(
    ("features", "is_bound"), [(ALL_FEATURES, True), (FeatureGate.at(LEVEL_FIRST), False)]
)
async def test_the_life_is_recorded_only_at_a_level_that_knows_it(
    lake: Lake, features: FeatureGate, *, is_bound: bool
) -> None:
    graveler = replace(lake.graveler, features=features)
    handler = UploadHandler(graveler)
    request = pb.CreateUploadRequest(
        repository_id="lake", branch_id=MAIN, path="k", template=entry(0)
    )
    made = await handler.CreateUpload(request, permit_for(request, lake.repository))
    found = await graveler.uploads.get(lake.repository, made.upload.upload_id)
    life = (await graveler.branches.fresh(lake.main)).branch.incarnation
    assert found.record.branch_incarnation == (life if is_bound else b"")


async def test_an_upload_without_a_life_completes_as_with_the_last_release(
    lake: Lake, upload: Upload
) -> None:
    await recreate_main(lake)
    await upload.finish()
    assert await lake.get("k") == 1
