"""The installation's secrets are replaced while auth serves: nothing that was valid becomes invalid too early."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.keys import AuthKeys
from tarn_auth.application import AuthApplication
from tarn_auth.registers import Registers
from tarn_auth.resealing import reseal
from tarn_auth.secret_box import SecretBox

if TYPE_CHECKING:
    from tests.unit.auth.conftest import World

OLD, NEW, OTHER = bytes(range(32)), b"n" * 32, b"x" * 32


async def rotated(world: World, *secrets: bytes) -> None:
    """Gives the process that the world started last other secrets."""
    await world.application.use_secrets(secrets)


async def reseal_all(world: World, *secrets: bytes) -> None:
    registers = Registers(world.kv, AuthKeys("test").partition)
    await reseal(registers, SecretBox(secrets, os.urandom), lambda *_: None)


async def refused(work: object) -> TarnError:
    with pytest.raises(TarnError) as caught:
        await work  # type: ignore[misc]
    return caught.value


async def test_a_rotation_ends_no_key_pair_no_session_and_no_listing(ready: World) -> None:
    made = await ready.user("ann", "Analyst")
    first = await ready.auth.list_users(ready.call(ready.admin), page_size=1)
    for secrets in ((OLD, NEW), (NEW, OLD)):
        await rotated(ready, *secrets)
        assert await ready.log_in(made)
        assert (await ready.auth.get_caller(ready.call(ready.admin))).user.user_id == "root"
        more = await ready.auth.list_users(
            ready.call(ready.admin), page_size=1, page_token=first.next_page_token
        )
        assert [user.user_id for user in more.users] == ["root"]
    late = await ready.user("eve", "Analyst")
    await reseal_all(ready, NEW, OLD)
    await rotated(ready, NEW)
    assert await ready.log_in(made)
    assert await ready.log_in(late)


async def test_after_the_rotation_the_old_secret_signs_nothing(ready: World) -> None:
    before = ready.admin
    await rotated(ready, NEW, OLD)
    await reseal_all(ready, NEW, OLD)
    await rotated(ready, NEW)
    error = await refused(ready.auth.get_caller(ready.call(before)))
    assert error.reason is Reason.CALLER_TOKEN_INVALID
    with pytest.raises(TarnError, match="another secret"):
        async with _process(ready, OLD):
            pass


def _process(world: World, *secrets: bytes) -> AuthApplication:
    return AuthApplication(
        world.kv, "test", secrets[0], world.clock, world.ids, previous_secrets=secrets[1:]
    )


async def test_replicas_may_change_one_after_another(ready: World) -> None:
    """In each step one replica has the next secrets and another one still has the last ones."""
    first, of_first = ready.application, ready.auth
    of_second = ready.replica()
    second = ready.application

    async def each_knows_the_other() -> None:
        for maker, user in ((of_first, of_second), (of_second, of_first)):
            made = await maker.create_credential(ready.call(ready.admin), user_id="root")
            token = await ready.log_in(made, maker)
            await user.get_caller(ready.call(token))
            assert await ready.log_in(made, user)

    for secrets in ((OLD, NEW), (NEW, OLD)):
        await first.use_secrets(secrets)
        await each_knows_the_other()
        await second.use_secrets(secrets)
        await each_knows_the_other()
    made = await of_second.create_credential(ready.call(ready.admin), user_id="root")
    await reseal_all(ready, NEW, OLD)
    await first.use_secrets((NEW,))
    token = await ready.log_in(made, of_first)
    await of_second.get_caller(ready.call(token))


async def test_a_secret_that_still_seals_is_not_removed(ready: World) -> None:
    made = await ready.user("ann", "Analyst")
    await rotated(ready, NEW, OLD)
    error = await refused(rotated(ready, NEW))
    assert error.kind is Kind.FAILED_PRECONDITION
    assert "2 secret keys" in error.message
    assert "rotate-master-key" in error.message
    assert await ready.log_in(made)


async def test_a_secret_of_another_installation_is_not_used(ready: World) -> None:
    made = await ready.user("ann", "Analyst")
    async with _process(ready, OLD):
        error = await refused(rotated(ready, OTHER, NEW))
    assert error.kind is Kind.FAILED_PRECONDITION
    assert await ready.log_in(made)
    with pytest.raises(TarnError, match="another secret"):
        async with _process(ready, OTHER):
            pass


async def test_a_foreign_secret_is_refused_even_if_nothing_is_sealed(world: World) -> None:
    async with _process(world, OLD):
        error = await refused(rotated(world, OTHER))
    assert "another secret" in error.message
    async with _process(world, OLD):
        pass


async def test_an_unknown_key_is_answered_alike_after_a_rotation(ready: World) -> None:
    made = await ready.user("ann", "Analyst")
    await ready.auth.delete_credential(ready.call(ready.admin), made.credential.access_key_id)
    await rotated(ready, NEW, OLD)
    await reseal_all(ready, NEW, OLD)
    await rotated(ready, NEW)
    error = await refused(ready.log_in(made))
    assert error.reason is Reason.SIGNATURE_MISMATCH


async def test_either_secret_proves_the_right_to_set_up(world: World) -> None:
    await rotated(world, OLD, NEW)
    made = await world.auth.set_up(world.call(), NEW, "root")
    assert await world.log_in(made)
