"""With online deletion only gateways stage addresses in the namespace (docs/design/online-deletion.md)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from graveler_service import Service, reason_of, running_service

from tarn.core.entry import Entry, pack
from tarn_graveler.branch.online_deletion import OnlineSettings


@pytest.fixture
async def online(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(tmp_path, online=OnlineSettings(is_enabled=True)) as made:
        yield made


def made_now(service: Service, number: int = 1, external: str = "") -> bytes:
    """An entry whose address is made now."""
    address = (service.clock.now_us() // 1000).to_bytes(6, "big") + number.to_bytes(10, "big")
    address = bytes(16) if external else address
    return pack(Entry(number, 0, address, bytes(16), external_address=external))


async def stage(service: Service, packed: bytes, path: str = "a", **proof: object) -> None:
    uid = (await service.graveler.get_repository(service.admin, "lake")).instance_uid
    await service.graveler.stage(service.admin, "lake", uid, "main", path, packed, **proof)  # type: ignore[arg-type]


async def gateway_token(service: Service, name: str = "gateway") -> str:
    return (await service.auth.authorize_service(service.anonymous, name)).caller_token


async def test_a_gateway_stages_addresses_that_it_made(online: Service) -> None:
    token = await gateway_token(online)
    await stage(online, made_now(online, 1), gateway_token=token, is_new_address=True)
    await stage(online, made_now(online, 2), gateway_token=token, is_new_address=True)
    deletion = online.replicas.made[0].online
    assert deletion is not None
    assert deletion.outcomes["queued"] == 1


async def test_an_address_that_was_found_is_not_private(online: Service) -> None:
    token = await gateway_token(online)
    await stage(online, made_now(online, 1), gateway_token=token)
    await stage(online, made_now(online, 2), gateway_token=token)
    deletion = online.replicas.made[0].online
    assert deletion is not None
    assert deletion.outcomes["queued"] == 0


async def test_others_do_not_stage_addresses_in_the_namespace(online: Service) -> None:
    """Also not an admin: it would escape the notes of copies."""
    compactor = await gateway_token(online, "compactor")
    forged = (await gateway_token(online))[:-2] + "xx"
    for token in ("", online.admin.caller_token, compactor, forged):
        refused = stage(online, made_now(online), gateway_token=token, is_new_address=True)
        assert await reason_of(refused) == "ADDRESS_NOT_ISSUED"
    found = online.graveler.lookup(online.admin, "lake", "main", "a")
    assert await reason_of(found) == "ENTRY_NOT_FOUND"


async def test_an_address_outside_the_namespace_needs_no_proof(online: Service) -> None:
    await stage(online, made_now(online, external="s3://elsewhere/key"))


async def test_the_token_of_a_gateway_allows_nothing_by_itself(online: Service) -> None:
    gateway = online.anonymous.__class__("r", await gateway_token(online), 1e9)
    assert await reason_of(online.graveler.get_repository(gateway, "lake")) == "ACCESS_DENIED"
    assert await reason_of(online.auth.get_caller(gateway)) == "CALLER_TOKEN_INVALID"


async def test_a_lookup_for_a_copy_says_that_the_block_may_be_shared(online: Service) -> None:
    token, packed = await gateway_token(online), made_now(online)
    await stage(online, packed, gateway_token=token, is_new_address=True)
    asked = online.graveler.lookup
    assert not (await asked(online.admin, "lake", "main", "a")).may_be_shared
    found = await asked(online.admin, "lake", "main", "a", is_copy_source=True)
    assert (found.may_be_shared, found.entry) == (True, packed)
    await stage(online, made_now(online, 2), gateway_token=token, is_new_address=True)
    deletion = online.replicas.made[0].online
    assert deletion is not None
    await deletion.step()
    assert deletion.outcomes["copied"] == 1


async def test_without_online_deletion_no_proof_is_asked_for(service: Service) -> None:
    await stage(service, made_now(service))
    found = await service.graveler.lookup(service.admin, "lake", "main", "a", is_copy_source=True)
    assert found.may_be_shared
