"""A process is admitted only if the store recognises one of its secrets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.support.clock import ManualClock, SeededIds

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.keys import AuthKeys
from tarn.kv.mem import MemKv
from tarn_auth.application import AuthApplication
from tarn_auth.registers import Registers
from tarn_auth.secret_mark import check_secret

if TYPE_CHECKING:
    from tests.unit.auth.conftest import World

OLD, NEW, OTHER = b"o" * 32, b"n" * 32, b"x" * 32


def process(kv: MemKv, *secrets: bytes) -> AuthApplication:
    clock = ManualClock()
    ids = SeededIds(clock, seed=1)
    return AuthApplication(kv, "lake", secrets[0], clock, ids, previous_secrets=secrets[1:])


async def start(kv: MemKv, *secrets: bytes) -> None:
    async with process(kv, *secrets):
        pass


async def refused(kv: MemKv, *secrets: bytes) -> None:
    with pytest.raises(TarnError, match="another secret") as caught:
        await start(kv, *secrets)
    assert caught.value.kind is Kind.FAILED_PRECONDITION


async def test_another_secret_is_refused() -> None:
    kv = MemKv()
    await start(kv, OLD)
    await start(kv, OLD)
    await refused(kv, OTHER)
    await start(kv, OLD)


async def test_the_error_says_what_to_do_and_shows_no_secret() -> None:
    kv = MemKv()
    await start(kv, OLD)
    with pytest.raises(TarnError, match=r"installation\.secret") as caught:
        await start(kv, OTHER)
    assert "'lake'" in caught.value.message
    assert "oooo" not in caught.value.message
    assert "xxxx" not in caught.value.message


async def test_during_a_rotation_both_secrets_and_no_other_are_accepted() -> None:
    kv = MemKv()
    await start(kv, OLD)
    await refused(kv, NEW)
    await start(kv, NEW, OLD)
    await start(kv, OLD)  # a replica that still has only the old secret restarts
    await start(kv, NEW)
    await refused(kv, OTHER)


async def test_one_of_two_concurrent_processes_is_admitted() -> None:
    kv = MemKv()
    kinds: list[Kind] = []

    async def attempt(secret: bytes) -> None:
        try:
            await start(kv, secret)
        except TarnError as error:
            kinds.append(error.kind)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(attempt(OLD))
        tasks.create_task(attempt(NEW))
    assert kinds == [Kind.FAILED_PRECONDITION]


async def test_the_number_of_noted_secrets_is_bounded() -> None:
    kv = MemKv()
    registers = Registers(kv, AuthKeys("lake").partition)
    for number in range(40):
        await check_secret(registers, "lake", [f"key{number + 1}", f"key{number}"])
    found = await registers.get(AuthKeys.secrets())
    assert found is not None
    noted = found.value.split()
    assert len(noted) == 16
    assert noted[0] == b"key40"


async def test_a_process_starts_while_the_store_is_unavailable(world: World) -> None:
    async def away(_: str, __: object) -> None:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the store is away")

    world.kv.before = away
    async with world.application:
        pass
