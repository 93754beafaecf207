"""Rotation of the installation's secret: no key pair is lost, and the old secret is needed until the status says so."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.unit.auth.conftest import SECRET, World

from tarn.core.errors import Kind, TarnError
from tarn.core.ids import AccessKeyId, UserId
from tarn.kv.auth_records import Credential, decode_credential, encode_credential
from tarn.kv.keys import AuthKeys
from tarn.kv.mem import MemKv
from tarn.kv.port import Partition, Predicate, Row
from tarn_auth import resealing
from tarn_auth.registers import Registers
from tarn_auth.resealing import count_seals, reseal
from tarn_auth.secret_box import SecretBox
from tarn_auth.secret_mark import check_secret

OLD, NEW, OTHER = b"o" * 32, b"n" * 32, b"x" * 32
COUNT = 250


def box(*secrets: bytes) -> SecretBox:
    return SecretBox(secrets, os.urandom)


def registers_of(kv: MemKv) -> Registers:
    return Registers(kv, AuthKeys("tarn").partition)


def name(number: int) -> AccessKeyId:
    return AccessKeyId(f"TARN{number:016}")


async def filled(kv: MemKv, count: int = COUNT) -> Registers:
    """Key pairs that the old secret seals, and the record that the store knows it."""
    registers, old = registers_of(kv), box(OLD)
    await check_secret(registers, "tarn", old.key_ids)
    for number in range(count):
        sealed, key_id = old.seal(name(number), f"secret {number}")
        made = Credential(name(number), UserId("ann"), b"u" * 16, "", 1, sealed, key_id)
        await registers.insert(AuthKeys.credential(name(number)), encode_credential(made))
    return registers


async def opened(registers: Registers, made: SecretBox, count: int = COUNT) -> list[str]:
    rows = await registers.get_many([AuthKeys.credential(name(n)) for n in range(count)])
    found = [decode_credential(row.value) for row in rows if row is not None]
    return [
        made.open(each.access_key_id, each.sealed_secret, each.encryption_key_id) for each in found
    ]


async def test_every_secret_key_is_sealed_again_and_stays_the_same() -> None:
    registers, ring = await filled(MemKv()), box(NEW, OLD)
    before = await count_seals(registers, ring)
    assert (before.waiting, before.lost) == (COUNT, 0)
    told: list[tuple[int, int]] = []
    after = await reseal(registers, ring, lambda *counts: told.append(counts))
    assert (after.waiting, after.by_key_id) == (0, {box(NEW).key_ids[0]: COUNT})
    assert told == [(100, 100), (200, 200), (250, 250)]
    assert await opened(registers, box(NEW)) == [f"secret {n}" for n in range(COUNT)]


async def test_afterwards_a_process_with_only_the_old_secret_is_refused() -> None:
    registers = await filled(MemKv(), 3)
    await check_secret(registers, "tarn", box(NEW, OLD).key_ids)
    await check_secret(registers, "tarn", box(OLD).key_ids)  # during the rotation both serve
    await reseal(registers, box(NEW, OLD), lambda *_: None)
    await check_secret(registers, "tarn", box(NEW).key_ids)
    with pytest.raises(TarnError) as refused:
        await check_secret(registers, "tarn", box(OLD).key_ids)
    assert refused.value.kind is Kind.FAILED_PRECONDITION


class KilledError(Exception):
    """The process ends here."""


class KilledKv(MemKv):
    """Ends the process at one of its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1

    async def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        if self.left == 0:
            raise KilledError
        self.left -= 1
        return await super().set_if(partition, key, value, predicate, companions=companions)


async def test_an_interrupted_run_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resealing, "_PAGE", 7)
    kv = KilledKv()
    registers, ring = await filled(kv, 30), box(NEW, OLD)
    kv.left = 11
    with pytest.raises(KilledError):
        await reseal(registers, ring, lambda *_: None)
    assert (await count_seals(registers, ring)).waiting == 19
    assert await opened(registers, ring, 30) == [f"secret {n}" for n in range(30)]
    kv.left = -1
    assert (await reseal(registers, ring, lambda *_: None)).waiting == 0


class RacingKv(MemKv):
    """Another process changes a key pair between the read and the write."""

    def __init__(self) -> None:
        super().__init__()
        self.is_racing = False

    async def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        if self.is_racing and predicate is not None:
            self.is_racing = False
            (found,) = await self.get_many(partition, [key])
            assert found is not None
            after = replace(decode_credential(found.value), description="changed")
            await super().set_if(partition, key, encode_credential(after), found.predicate)
        return await super().set_if(partition, key, value, predicate, companions=companions)


async def test_a_change_meanwhile_is_not_overwritten() -> None:
    kv = RacingKv()
    registers, ring = await filled(kv, 2), box(NEW, OLD)
    kv.is_racing = True
    assert (await reseal(registers, ring, lambda *_: None)).waiting == 0
    row = await registers.get(AuthKeys.credential(name(0)))
    assert row is not None
    assert decode_credential(row.value).description == "changed"
    assert await opened(registers, ring, 2) == ["secret 0", "secret 1"]


async def test_the_old_secret_is_recognised_while_it_seals_anything() -> None:
    """A process that has only the old secret creates a key pair behind the pass."""
    kv = MemKv()
    registers, ring = await filled(kv, 2), box(NEW, OLD)

    access_key_id = AccessKeyId("TARN" + "-" * 16)
    sealed, key_id = box(OLD).seal(access_key_id, "new")
    made = Credential(access_key_id, UserId("ann"), b"u" * 16, "", 1, sealed, key_id)
    first_page = asyncio.Event()

    class Creating(Registers):
        async def page(self, start: bytes, end: bytes, limit: int) -> list[Row]:
            if first_page.is_set():
                await self.insert(AuthKeys.credential(access_key_id), encode_credential(made))
            return await super().page(start, end, limit)

    creating = Creating(kv, AuthKeys("tarn").partition)
    assert (await reseal(creating, ring, lambda *_: first_page.set())).waiting == 1
    known = await registers.get(AuthKeys.secrets())
    assert known is not None
    assert known.value.decode() == box(OLD).key_ids[0]
    assert (await reseal(registers, ring, lambda *_: None)).waiting == 0


async def test_nothing_is_changed_without_the_secret_that_seals_it() -> None:
    registers = await filled(MemKv(), 2)
    with pytest.raises(TarnError, match="previous_secret") as refused:
        await reseal(registers, box(NEW, OTHER), lambda *_: None)
    assert refused.value.kind is Kind.CORRUPT
    assert (await count_seals(registers, box(OLD))).waiting == 0


async def test_sessions_outlive_the_rotation(world: World) -> None:
    """Replicas whose secrets are in either order accept each other's caller tokens; a foreign one is refused."""
    made = await world.set_up()
    before = world.admin
    rotated = world.replica(secret=NEW, previous=(SECRET,))
    behind = world.replica(secret=SECRET, previous=(NEW,))
    after = await world.log_in(made, rotated)
    for auth in (rotated, behind):
        for token in (before, after):
            grant = await auth.authorize_token(world.call(), token)
            assert grant.user_id == "root"
    with pytest.raises(TarnError) as refused:
        await world.replica(secret=NEW).authorize_token(world.call(), before)
    assert refused.value.kind is Kind.UNAUTHENTICATED
