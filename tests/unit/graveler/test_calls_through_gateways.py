"""What a gateway tells about bytes that it received is taken from gateways only, not from the user whom it serves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from graveler_service import Service, reason_of, running_service
from lake import entry

from tarn.core.access.service import Service as ServiceName
from tarn.core.entry import pack, unpack
from tarn.core.errors import Reason
from tarn.rpc.rules import rules_of
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import upload_service_pb2 as pb

_HASH = bytes(32)
_SERVICE = pb.DESCRIPTOR.services_by_name["UploadService"]
_PART = pb.UploadPart(part_number=1, attempt="a", size_bytes=6, md5=bytes(16))

_CALLS: dict[str, Callable[[Service, Call, str], Awaitable[object]]] = {
    "CreateUpload": lambda s, call, _: s.graveler.create_upload(
        call, "lake", "main", "new", template=entry(0)
    ),
    "RecordUploadPart": lambda s, call, upload_id: s.graveler.record_upload_part(
        call, "lake", upload_id, _PART
    ),
    "BeginCompleteUpload": lambda s, call, upload_id: s.graveler.begin_complete_upload(
        call, "lake", upload_id, _HASH
    ),
    "FinishCompleteUpload": lambda s, call, upload_id: s.graveler.finish_complete_upload(
        call, "lake", upload_id, b"claim", entry(6)
    ),
    "ReopenUpload": lambda s, call, upload_id: s.graveler.reopen_upload(
        call, "lake", upload_id, b"claim"
    ),
    "AbortUpload": lambda s, call, upload_id: s.graveler.abort_upload(call, "lake", upload_id),
}


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(tmp_path) as made:
        yield made


def test_every_rpc_that_changes_an_upload_is_called_through_a_gateway() -> None:
    rules = rules_of(_SERVICE)
    through = {name for name, rule in rules.items() if ServiceName.GATEWAY in rule.through}
    assert through == {name for name, rule in rules.items() if not rule.read_only} == set(_CALLS)


@pytest.mark.parametrize("rpc", _CALLS)
async def test_a_user_without_a_gateway_changes_no_upload(service: Service, rpc: str) -> None:
    """Not the administrator either, nor with a token of its own or of another service beside it."""
    upload = await service.graveler.create_upload(
        service.admin, "lake", "main", "a", template=entry(0)
    )
    compactor = await service.gateway_token(ServiceName.COMPACTOR)
    for proof in ("", "false", service.admin.caller_token, compactor, "x" * 4096):
        call = replace(service.admin, service_token=proof)
        refused = _CALLS[rpc](service, call, upload.upload_id)
        assert await reason_of(refused) is Reason.SERVICE_REQUIRED, proof
    begun = await service.graveler.begin_complete_upload(
        service.admin, "lake", upload.upload_id, _HASH
    )
    assert begun.claim, "the upload is as it was"


async def test_the_proof_of_a_gateway_does_not_take_the_place_of_the_user(service: Service) -> None:
    proof = service.admin.service_token
    analyst = await service.as_user("ann", "Analyst")
    assert analyst.service_token == proof
    create = service.graveler.create_upload(analyst, "lake", "main", "a", template=entry(0))
    assert await reason_of(create) is Reason.ACCESS_DENIED
    anonymous = replace(service.anonymous, service_token=proof)
    create = service.graveler.create_upload(anonymous, "lake", "main", "a", template=entry(0))
    assert await reason_of(create) is Reason.CALLER_TOKEN_INVALID


async def test_other_bytes_never_take_the_identity_of_a_committed_object(service: Service) -> None:
    """A Developer begins an upload by S3, and tells graveler by rpc that it holds the bytes of another object."""
    await service.put("a", 6)
    await service.graveler.create_commit(service.admin, "lake", "main", "honest")
    developer = await service.as_user("dev", "Developer")
    upload = await service.graveler.create_upload(developer, "lake", "main", "a", template=entry(0))
    alone = replace(developer, service_token="")
    begin = service.graveler.begin_complete_upload(alone, "lake", upload.upload_id, _HASH)
    assert await reason_of(begin) is Reason.SERVICE_REQUIRED
    begun = await service.graveler.begin_complete_upload(developer, "lake", upload.upload_id, _HASH)
    committed = (await service.graveler.lookup(developer, "lake", "main", "a")).entry
    forged = pack(replace(unpack(committed), address=upload.address, operation_id=upload.upload_id))
    finish = service.graveler.finish_complete_upload(
        alone, "lake", upload.upload_id, begun.claim, forged
    )
    assert await reason_of(finish) is Reason.SERVICE_REQUIRED
    assert (await service.graveler.lookup(developer, "lake", "main", "a")).entry == committed
