"""Only gateways stage addresses in the namespace; clients link what they wrote (docs/design/links.md)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from graveler_service import Service, reason_of, running_service
from lake_links import BODY, PATH, Bucket, issue, link, written

from tarn.client.graveler import GravelerClient
from tarn.core.condition import WriteCondition
from tarn.core.entry import Entry, pack, unpack
from tarn.core.errors import Reason, TarnError
from tarn.core.levels import LEVEL_FIRST, LEVEL_MAX, FeatureGate
from tarn.gate.access import Access
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.wire.call import Call
from tarn_graveler.application import endpoints_of
from tarn_graveler.collection.online_deletion import OnlineSettings


@pytest.fixture
async def online(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(tmp_path, online=OnlineSettings(is_enabled=True)) as made:
        yield made


def made_now(service: Service, number: int = 1, external: str = "") -> bytes:
    """An entry whose address is made now."""
    address = (service.clock.now_us() // 1000).to_bytes(6, "big") + number.to_bytes(10, "big")
    address = bytes(16) if external else address
    return pack(Entry(number, 0, address, bytes(16), external_address=external))


async def stage(
    service: Service,
    packed: bytes,
    path: str = "a",
    call: Call | None = None,
    *,
    gateway_token: str = "",
    is_new_address: bool = False,
) -> None:
    call = replace(call or service.admin, service_token=gateway_token)
    uid = (await service.graveler.get_repository(call, "lake")).instance_uid
    place = ("lake", uid, "main", path, packed)
    await service.graveler.stage(call, *place, is_new_address=is_new_address)


async def test_a_gateway_stages_addresses_that_it_made(online: Service) -> None:
    token = await online.gateway_token()
    await stage(online, made_now(online, 1), gateway_token=token, is_new_address=True)
    await stage(online, made_now(online, 2), gateway_token=token, is_new_address=True)
    deletion = online.replicas.made[0].online
    assert deletion is not None
    assert deletion.queue.outcomes["queued"] == 1


async def test_an_address_that_was_found_is_not_private(online: Service) -> None:
    token = await online.gateway_token()
    await stage(online, made_now(online, 1), gateway_token=token)
    await stage(online, made_now(online, 2), gateway_token=token)
    deletion = online.replicas.made[0].online
    assert deletion is not None
    assert deletion.queue.outcomes["queued"] == 0


async def test_others_do_not_stage_addresses_in_the_namespace(online: Service) -> None:
    """Also not an admin: it would escape the notes of copies."""
    compactor = await online.gateway_token("compactor")
    forged = (await online.gateway_token())[:-2] + "xx"
    forged_api = (await online.gateway_token("api"))[:-2] + "xx"
    for token in ("", online.admin.caller_token, compactor, forged, forged_api):
        refused = stage(online, made_now(online), gateway_token=token, is_new_address=True)
        assert await reason_of(refused) == "ADDRESS_NOT_ISSUED"
    found = online.graveler.lookup(online.admin, "lake", "main", "a")
    assert await reason_of(found) == "ENTRY_NOT_FOUND"


@pytest.mark.parametrize("front", ["gateway", "api"])
async def test_fronts_stage_what_they_made(online: Service, front: str) -> None:
    await stage(
        online,
        made_now(online),
        gateway_token=await online.gateway_token(front),
        is_new_address=True,
    )
    assert (await online.graveler.lookup(online.admin, "lake", "main", "a")).entry


async def test_an_address_outside_the_namespace_is_refused_with_any_proof(online: Service) -> None:
    packed, token = made_now(online, external="s3://elsewhere/key"), await online.gateway_token()
    for proof in ("", token):
        refused = stage(online, packed, gateway_token=proof)
        assert await reason_of(refused) == "INVALID_ARGUMENT"


async def test_the_token_of_a_gateway_allows_nothing_by_itself(online: Service) -> None:
    gateway = online.anonymous.__class__("r", await online.gateway_token(), 1e9)
    assert await reason_of(online.graveler.get_repository(gateway, "lake")) == "ACCESS_DENIED"
    assert await reason_of(online.auth.get_caller(gateway)) == "CALLER_TOKEN_INVALID"


async def test_a_lookup_for_a_copy_says_that_the_block_may_be_shared(online: Service) -> None:
    token, packed = await online.gateway_token(), made_now(online)
    await stage(online, packed, gateway_token=token, is_new_address=True)
    asked = online.graveler.lookup
    assert not (await asked(online.admin, "lake", "main", "a")).may_be_shared
    found = await asked(online.admin, "lake", "main", "a", is_copy_source=True)
    assert (found.may_be_shared, found.entry) == (True, packed)
    await stage(online, made_now(online, 2), gateway_token=token, is_new_address=True)
    deletion = online.replicas.made[0].online
    assert deletion is not None
    await deletion.step()
    assert deletion.queue.outcomes["copied"] == 1


@pytest.fixture
async def bucket(tmp_path: Path) -> AsyncIterator[Service]:
    """A service over a bucket, without online deletion."""
    async with running_service(tmp_path, store=Bucket) as made:
        yield made


async def test_a_client_does_not_stage_an_address_that_it_invented(bucket: Service) -> None:
    """Neither an administrator nor a user who may write; with a proof that is none, or with none."""
    ann = await bucket.as_user("ann", "Developer")
    for call in (bucket.admin, ann):
        for token in ("", call.caller_token, "link"):
            refused = stage(bucket, made_now(bucket), call=call, gateway_token=token)
            with pytest.raises(TarnError, match="GetPhysicalAddress") as raised:
                await refused
            assert raised.value.reason is Reason.ADDRESS_NOT_ISSUED
    condition = WriteCondition(if_none_match=True)
    uid = (await bucket.graveler.get_repository(ann, "lake")).instance_uid
    named = pack(replace(unpack(made_now(bucket)), operation_id="op"))
    place = ("lake", uid, "main", "a", named)
    alone = replace(ann, service_token="")
    assert await reason_of(bucket.graveler.stage(alone, *place, condition)) == "ADDRESS_NOT_ISSUED"
    assert await reason_of(bucket.graveler.lookup(ann, "lake", "main", "a")) == "ENTRY_NOT_FOUND"


async def test_a_client_stages_an_issued_address_only_by_its_link(bucket: Service) -> None:
    """Neither at its own path nor at another one, neither before nor after it is linked: the link consumes it."""
    issued = await issue(bucket)
    await written(bucket, issued)
    address = bytes.fromhex(issued.physical_address.rpartition("/")[2])
    packed = pack(Entry(len(BODY), 0, address, bytes(16)))
    for path in (PATH, "other"):
        for token in ("", issued.token):
            refused = stage(bucket, packed, path, gateway_token=token)
            assert await reason_of(refused) == "ADDRESS_NOT_ISSUED"
    linked = pack(replace(unpack(await link(bucket, issued.token)), operation_id=""))
    for path in (PATH, "other"):
        assert await reason_of(stage(bucket, linked, path)) == "ADDRESS_NOT_ISSUED"
        found = link(bucket, issued.token, path=path, size=1)
        refusal = "LINK_USED" if path == PATH else "INVALID_ARGUMENT"
        assert await reason_of(found) == refusal
    page = await bucket.graveler.list_entries(bucket.admin, "lake", "main")
    assert list(page.paths) == [PATH]


async def test_before_the_upgrade_is_finished_old_gateways_write(bucket: Service) -> None:
    """A gateway of release 0.9.0 sends no token. It is refused as soon as the level says that none is left."""
    level = LEVEL_FIRST
    graveler = replace(bucket.replicas.made[0], features=FeatureGate(lambda: level))
    access = Access(bucket.auth, bucket.clock)
    transport = InProcessTransport(endpoints_of(graveler, access), bucket.clock)
    old = replace(bucket, graveler=GravelerClient(transport))
    await stage(old, made_now(bucket))
    found = await old.graveler.lookup(bucket.admin, "lake", "main", "a", is_copy_source=True)
    assert found.may_be_shared
    level = LEVEL_MAX
    assert await reason_of(stage(old, made_now(bucket, 2))) == "ADDRESS_NOT_ISSUED"
    await stage(old, made_now(bucket, 2), gateway_token=await bucket.gateway_token())
    await transport.close()


async def test_online_deletion_does_not_wait_for_the_level(online: Service) -> None:
    graveler = replace(online.replicas.made[0], features=FeatureGate.at(LEVEL_FIRST))
    access = Access(online.auth, online.clock)
    transport = InProcessTransport(endpoints_of(graveler, access), online.clock)
    old = replace(online, graveler=GravelerClient(transport))
    assert await reason_of(stage(old, made_now(online))) == "ADDRESS_NOT_ISSUED"
    await transport.close()
