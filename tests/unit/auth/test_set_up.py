"""SetUp works exactly once, and a failed attempt never locks an installation."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import pytest

from tarn.client.auth import NewCredential
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.keys import AuthKeys

if TYPE_CHECKING:
    from tests.unit.auth.conftest import World

SECRET = bytes(range(32))
PAIR = {"access_key_id": "AUTOMATEDINSTALL0001", "secret_access_key": "s" * 40}


async def refused(work: Awaitable[object]) -> Reason:
    with pytest.raises(TarnError) as caught:
        await work
    return caught.value.reason


async def test_the_first_admin_can_log_in_and_is_an_admin(world: World) -> None:
    assert not (await world.auth.get_setup_state(world.call())).is_set_up
    made = await world.set_up()
    assert len(made.credential.access_key_id) == 20
    assert len(made.secret_access_key) == 40
    state = await world.auth.get_setup_state(world.call())
    assert (state.is_set_up, state.installation_id) == (True, "test")
    caller = await world.auth.get_caller(world.call(world.admin))
    assert (caller.user.user_id, list(caller.user.roles)) == ("root", ["Admin"])


async def test_set_up_is_refused_once_it_is_done(ready: World) -> None:
    for user_id in ("root", "other"):
        work = ready.auth.set_up(ready.call(), SECRET, user_id)
        assert await refused(work) is Reason.ALREADY_SET_UP
    other = ready.replica()
    assert await refused(other.set_up(ready.call(), SECRET, "other")) is Reason.ALREADY_SET_UP


@pytest.mark.parametrize("is_done", [False, True])
async def test_without_the_installations_secret_set_up_reveals_nothing(
    world: World, is_done: bool
) -> None:
    if is_done:
        await world.set_up()
    before = await world.rows()
    work = world.auth.set_up(world.call(), bytes(32), "thief")
    assert await refused(work) is Reason.SIGNATURE_MISMATCH
    assert await world.rows() == before


async def test_a_chosen_key_pair_is_the_one_that_works(world: World) -> None:
    made = await world.auth.set_up(world.call(), SECRET, "root", **PAIR)
    assert made.credential.access_key_id == PAIR["access_key_id"]
    assert made.secret_access_key == PAIR["secret_access_key"]
    await world.log_in(made)


async def test_a_repeated_set_up_with_the_same_chosen_pair_gets_the_same_answer(
    world: World,
) -> None:
    first = await world.auth.set_up(world.call(), SECRET, "root", **PAIR)
    again = await world.auth.set_up(world.call(), SECRET, "root", **PAIR)
    assert again == first
    wrong = PAIR | {"secret_access_key": "t" * 40}
    for user_id, pair in (("root", wrong), ("other", PAIR)):
        work = world.auth.set_up(world.call(), SECRET, user_id, **pair)
        assert await refused(work) is Reason.ALREADY_SET_UP


@pytest.mark.parametrize(
    "pair",
    [
        {"access_key_id": "AUTOMATEDINSTALL0001"},
        {"secret_access_key": "s" * 40},
        {"access_key_id": "short", "secret_access_key": "s" * 40},
        {"access_key_id": "AUTOMATED/INSTALL/01", "secret_access_key": "s" * 40},
        {"access_key_id": "AUTOMATEDINSTALL0001", "secret_access_key": "hunter2"},
    ],
)
async def test_half_a_pair_or_a_weak_one_is_refused_without_being_shown(
    world: World, pair: dict[str, str]
) -> None:
    with pytest.raises(TarnError) as caught:
        await world.auth.set_up(world.call(), SECRET, "root", **pair)
    assert caught.value.kind is Kind.INVALID
    assert not any(value in repr(caught.value) for value in pair.values())
    assert await world.rows() == []


async def admins(world: World) -> list[str]:
    users = (await world.auth.list_users(world.call(world.admin))).users
    return [user.user_id for user in users if "Admin" in user.roles]


@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("lands", [False, True])
async def test_a_crash_at_any_write_leaves_it_neither_open_nor_locked(
    world: World, chosen: bool, lands: bool
) -> None:
    pair = PAIR if chosen else {}
    for at in itertools.count():
        world.reset()
        world.kv.fail(at, lands=lands)
        try:
            await world.auth.set_up(world.call(), SECRET, "root", **pair)
        except TarnError:
            pass  # a client sees a crash as this error
        else:
            assert at >= 4  # the rows user, owned, credential and setup: each write failed once
            return
        world.kv.fail(None)
        restarted = world.replica()
        is_set_up = (await restarted.get_setup_state(world.call())).is_set_up
        # Only the last write decides; its answer is lost only if auth made the pair.
        if is_set_up and not chosen:
            assert await refused(restarted.set_up(world.call(), SECRET, "root"))
            continue
        made = await restarted.set_up(world.call(), SECRET, "root", **pair)
        world.admin = await world.log_in(made, restarted)
        assert await admins(world) == ["root"]
        assert await refused(restarted.set_up(world.call(), SECRET, "other"))


@pytest.mark.parametrize("lands", [False, True])
async def test_another_name_after_a_crash_leaves_one_admin(world: World, lands: bool) -> None:
    for at in range(3):
        world.reset()
        world.kv.fail(at, lands=lands)
        with pytest.raises(TarnError):
            await world.auth.set_up(world.call(), SECRET, "dead")
        world.kv.fail(None)
        await world.set_up()
        assert await admins(world) == ["root"]
        assert not any(b"dead" in key + value for key, value in await world.rows())


@pytest.mark.parametrize("lands", [False, True])
async def test_an_unknown_outcome_at_any_write_is_settled(world: World, lands: bool) -> None:
    for at in range(4):
        world.reset()
        world.kv.fail(at, lands=lands, unknown=True)
        try:
            made = await world.auth.set_up(world.call(), SECRET, "root")
        except TarnError:
            assert not lands
            made = await world.auth.set_up(world.call(), SECRET, "root")
        await world.log_in(made)


async def attempts(world: World, user_ids: list[str]) -> list[NewCredential]:
    """Returns the answers to concurrent attempts, each in a process of its own."""

    async def attempt(user_id: str) -> NewCredential | TarnError:
        try:
            return await world.replica().set_up(world.call(), SECRET, user_id)
        except TarnError as error:
            return error

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(attempt(user_id)) for user_id in user_ids]
    outcomes = [task.result() for task in tasks]
    errors = {outcome.reason for outcome in outcomes if isinstance(outcome, TarnError)}
    assert errors <= {Reason.ALREADY_SET_UP}
    return [outcome for outcome in outcomes if isinstance(outcome, NewCredential)]


async def test_attempts_at_once_for_one_user_give_one_answer(world: World) -> None:
    most = 0
    for seed in range(30):
        world.reset(seed)
        made = await attempts(world, ["root"] * 3)
        most = max(most, len(made))
        assert len({answer.secret_access_key for answer in made}) == 1
        world.admin = await world.log_in(made[0])
        assert await admins(world) == ["root"]
    assert most > 1  # the attempts ran concurrently


async def test_attempts_at_once_for_several_users_leave_one_admin(world: World) -> None:
    for seed in range(30):
        world.reset(seed)
        (made,) = await attempts(world, [f"root{number}" for number in range(4)])
        world.admin = await world.log_in(made)
        assert await admins(world) == [made.credential.user_id]
        owned = [key for key, _ in await world.rows() if key.startswith(b"owned/")]
        assert len(owned) == 1


async def test_a_user_left_by_an_attempt_with_another_secret_blocks_only_its_name(
    world: World,
) -> None:
    world.kv.fail(1)
    with pytest.raises(TarnError):
        await world.auth.set_up(world.call(), SECRET, "root")
    world.kv.fail(None)
    fresh = world.replica(secret=b"n" * 32)
    assert await refused(fresh.set_up(world.call(), b"n" * 32, "root")) is Reason.USER_EXISTS
    made = await fresh.set_up(world.call(), b"n" * 32, "root2")
    await world.log_in(made, fresh)


async def test_only_the_setup_row_says_that_it_is_done(ready: World) -> None:
    rows = dict(await ready.rows())
    assert AuthKeys.setup() in rows
