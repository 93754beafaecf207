"""Users and key pairs: permissions, ends, and a re-created user, which inherits nothing."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

import pytest

from tarn.client.auth import AuthClient
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import FeatureGate
from tarn.kv.auth_records import decode_user
from tarn.kv.keys import AuthKeys
from tarn.rpc.client.inprocess import InProcessTransport
from tarn_auth.application import AuthApplication

if TYPE_CHECKING:
    from tests.unit.auth.conftest import World


USER_BOB = (AuthKeys("test").partition, [AuthKeys.user("bob")])


async def refused(work: Awaitable[object]) -> Reason:
    with pytest.raises(TarnError) as caught:
        await work
    return caught.value.reason


async def test_a_user_is_created_once_and_found(ready: World) -> None:
    call = ready.call(ready.admin)
    made = await ready.auth.create_user(call, "bob", ["Analyst", "Developer", "Analyst"])
    assert list(made.roles) == ["Developer", "Analyst"]
    assert await ready.auth.get_user(call, "bob") == made
    assert await refused(ready.auth.create_user(call, "bob", ["Analyst"])) is Reason.USER_EXISTS
    assert await refused(ready.auth.get_user(call, "carol")) is Reason.USER_NOT_FOUND


@pytest.mark.parametrize(
    ("user_id", "roles", "reason"),
    [
        ("", ["Admin"], Reason.INVALID_ARGUMENT),
        ("a/b", ["Admin"], Reason.INVALID_ARGUMENT),
        ("*", ["Admin"], Reason.INVALID_ARGUMENT),
        ("anonymous", ["Admin"], Reason.INVALID_ARGUMENT),
        ("bob", ["root"], Reason.ROLE_NOT_FOUND),
    ],
)
async def test_a_wrong_user_is_refused(
    ready: World, user_id: str, roles: list[str], reason: Reason
) -> None:
    assert await refused(ready.auth.create_user(ready.call(ready.admin), user_id, roles)) is reason


async def test_users_are_listed_by_pages_in_order(ready: World) -> None:
    call = ready.call(ready.admin)
    for number in range(5):
        await ready.auth.create_user(call, f"u{number}", ["Analyst"])
    names, token = [], ""
    pages = 0
    while True:
        pages += 1
        answer = await ready.auth.list_users(call, page_size=2, page_token=token)
        names += [user.user_id for user in answer.users]
        token = answer.next_page_token
        if not token:
            break
    assert (names, pages) == (["root", "u0", "u1", "u2", "u3", "u4"], 3)
    assert await refused(ready.auth.list_users(call, page_token="x")) is Reason.INVALID_PAGE_TOKEN


async def test_users_are_listed_by_prefix_and_after_a_name(ready: World) -> None:
    call = ready.call(ready.admin)
    for user_id in ("a", "ab", "abc", "b"):
        await ready.auth.create_user(call, user_id, [])

    async def listed(prefix: str, after: str) -> list[str]:
        names, token = [], ""
        while True:
            page = await ready.auth.list_users(
                call, prefix=prefix, after=after, page_size=1, page_token=token
            )
            names += [each.user_id for each in page.users]
            token = page.next_page_token
            if not token:
                return names

    assert await listed("", "") == ["a", "ab", "abc", "b", "root"]
    assert await listed("ab", "") == ["ab", "abc"]
    assert await listed("ab", "ab") == ["abc"]
    assert await listed("a", "0") == ["a", "ab", "abc"]
    assert await listed("ab", "b") == []
    assert await listed("", "aa") == ["ab", "abc", "b", "root"]
    page = await ready.auth.list_users(call, prefix="a", page_size=1)
    other = ready.auth.list_users(call, prefix="b", page_token=page.next_page_token)
    assert await refused(other) is Reason.INVALID_PAGE_TOKEN


async def test_keys_are_listed_by_pages_and_a_token_belongs_to_its_user(ready: World) -> None:
    call = ready.call(ready.admin)
    made = await ready.user("bob", "Analyst")
    mine = {made.credential.access_key_id}
    for _ in range(4):
        more = await ready.auth.create_credential(call, user_id="bob", description="a job")
        assert more.credential.description == "a job"
        mine.add(more.credential.access_key_id)
    found, token = [], ""
    while True:
        page = await ready.auth.list_credentials(call, user_id="bob", page_size=2, page_token=token)
        found += [credential.access_key_id for credential in page.credentials]
        if not page.next_page_token:
            break
        token = page.next_page_token
    assert found == sorted(mine)
    work = ready.auth.list_credentials(call, page_token=token)
    assert await refused(work) is Reason.INVALID_PAGE_TOKEN


async def test_new_roles_count_at_once(ready: World) -> None:
    bob = await ready.user("bob", "Analyst")
    token = await ready.log_in(bob)
    await ready.auth.update_user_roles(ready.call(ready.admin), "bob", ["Admin"])
    assert len((await ready.auth.list_users(ready.call(token))).users) == 2
    await ready.auth.update_user_roles(ready.call(ready.admin), "bob", ["Analyst"])
    assert await refused(ready.auth.list_users(ready.call(token))) is Reason.ACCESS_DENIED


async def test_a_recreated_user_inherits_nothing(ready: World) -> None:
    """lakeFS CVE-2024-43784."""
    bob = await ready.user("bob", "Admin")
    token = await ready.log_in(bob)
    await ready.auth.delete_user(ready.call(ready.admin), "bob")
    await ready.auth.create_user(ready.call(ready.admin), "bob", ["Admin"])
    assert await refused(ready.log_in(bob)) is Reason.SIGNATURE_MISMATCH
    assert await refused(ready.auth.list_users(ready.call(token))) is Reason.CALLER_TOKEN_INVALID
    scope = (bob.credential.access_key_id, ready.day(), "us-east-1", "s3")
    work = ready.auth.authorize_key(ready.call(), *scope)
    assert await refused(work) is Reason.CREDENTIAL_NOT_FOUND
    listed = await ready.auth.list_credentials(ready.call(ready.admin), user_id="bob")
    assert list(listed.credentials) == []


async def test_a_key_row_that_outlived_its_user_is_not_valid_for_a_new_user_of_that_name(
    ready: World,
) -> None:
    """The deletion may have been interrupted, so the user's uid alone must invalidate the key."""
    bob = await ready.user("bob", "Admin")
    kept = [
        (key, value)
        for key, value in await ready.rows()
        if key == AuthKeys.credential(bob.credential.access_key_id)
    ]
    await ready.auth.delete_user(ready.call(ready.admin), "bob")
    await ready.auth.create_user(ready.call(ready.admin), "bob", ["Admin"])
    partition = AuthKeys("test").partition
    for key, value in kept:
        await ready.kv.set_if(partition, key, value, None)
    assert await refused(ready.log_in(bob)) is Reason.SIGNATURE_MISMATCH
    scope = (bob.credential.access_key_id, ready.day(), "us-east-1", "s3")
    work = ready.replica().authorize_key(ready.call(), *scope)
    assert await refused(work) is Reason.CREDENTIAL_NOT_FOUND


async def test_deleting_a_user_leaves_no_row_of_it(ready: World) -> None:
    before = await ready.rows()
    await ready.user("bob", "Analyst")
    await ready.auth.create_credential(ready.call(ready.admin), user_id="bob")
    await ready.auth.delete_user(ready.call(ready.admin), "bob")
    assert await ready.rows() == before
    work = ready.auth.delete_user(ready.call(ready.admin), "bob")
    assert await refused(work) is Reason.USER_NOT_FOUND


@pytest.mark.parametrize("lands", [False, True])
async def test_a_crash_during_a_deletion_leaves_no_working_key(world: World, lands: bool) -> None:
    for at in range(5):
        world.reset()
        async with world.application:
            await world.set_up()
        before = await world.rows()
        bob = await world.user("bob", "Admin")
        world.kv.fail(at, lands=lands)
        with pytest.raises(TarnError):
            await world.auth.delete_user(world.call(world.admin), "bob")
        world.kv.fail(None)
        restarted = world.replica()
        async with world.application:
            pass
        users = (await restarted.list_users(world.call(world.admin))).users
        is_deleted = "bob" not in [user.user_id for user in users]
        if is_deleted:
            assert await refused(world.log_in(bob, restarted)) is Reason.SIGNATURE_MISMATCH
            assert await world.rows() == before
        else:
            # It failed before any effect, so it stays without effect.
            await world.log_in(bob, restarted)
            assert not any(key.startswith(b"deletions/") for key, _ in await world.rows())


@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.parametrize("at", range(5))
async def test_an_unknown_outcome_during_a_deletion_is_settled(
    ready: World, at: int, lands: bool
) -> None:
    bob = await ready.user("bob", "Admin")
    ready.kv.fail(at, lands=lands, unknown=True)
    try:
        await ready.auth.delete_user(ready.call(ready.admin), "bob")
    except TarnError:
        await ready.auth.delete_user(ready.call(ready.admin), "bob")
    assert await refused(ready.log_in(bob)) is Reason.SIGNATURE_MISMATCH


async def test_rights_that_are_taken_again_leave_another_record(ready: World) -> None:
    """A compare-and-set that a store makes late expects the record of before: it must never be there again."""
    await ready.auth.create_user(ready.call(ready.admin), "bob", ["Analyst"])
    stored: list[bytes] = []
    for role in ("Analyst", "Developer", "Analyst"):
        await ready.auth.update_user_roles(ready.call(ready.admin), "bob", [role])
        row = (await ready.kv.get_many(*USER_BOB))[0]
        stored.append(row.value)
    assert len(set(stored)) == 3


async def test_below_the_feature_level_a_change_of_roles_writes_no_new_field(ready: World) -> None:
    below = AuthApplication(
        ready.kv, "test", ready.secret, ready.clock, ready.ids, features=FeatureGate.at(1)
    )
    transport = InProcessTransport(below.endpoints_in_process, ready.clock)
    ready.transports.append(transport)
    auth = AuthClient(transport)
    await auth.create_user(ready.call(ready.admin), "bob", ["Analyst"])
    await auth.update_user_roles(ready.call(ready.admin), "bob", ["Developer"])
    user = decode_user((await ready.kv.get_many(*USER_BOB))[0].value)
    assert (user.roles, user.change_id) == (("Developer",), b"")


@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.parametrize("at", range(2))
async def test_a_crash_while_a_key_is_created_leaves_no_unlisted_key(
    ready: World, at: int, lands: bool
) -> None:
    await ready.auth.create_user(ready.call(ready.admin), "bob", ["Analyst"])
    ready.kv.fail(at, lands=lands)
    with pytest.raises(TarnError):
        await ready.auth.create_credential(ready.call(ready.admin), user_id="bob")
    stored = [key for key, _ in await ready.rows() if key.startswith(b"credentials/")]
    listed = await ready.auth.list_credentials(ready.call(ready.admin), user_id="bob")
    assert len(stored) - 1 == len(listed.credentials) == (at == 1 and lands)


async def test_a_key_made_while_its_user_is_deleted_does_not_stay(ready: World) -> None:
    await ready.auth.create_user(ready.call(ready.admin), "bob", ["Analyst"])
    before = [row for row in await ready.rows() if b"bob" not in row[1]]

    async def deleted_meanwhile(name: str, key: object) -> None:
        if name == "set_if" and isinstance(key, bytes) and key.startswith(b"credentials/"):
            ready.kv.before = None
            await ready.auth.delete_user(ready.call(ready.admin), "bob")

    ready.kv.before = deleted_meanwhile
    work = ready.auth.create_credential(ready.call(ready.admin), user_id="bob")
    assert await refused(work) is Reason.USER_NOT_FOUND
    assert await ready.rows() == before


async def test_a_deleted_key_is_dead_and_its_token_with_it(ready: World) -> None:
    bob = await ready.user("bob", "Analyst")
    token = await ready.log_in(bob)
    await ready.auth.delete_credential(ready.call(ready.admin), bob.credential.access_key_id)
    assert await refused(ready.log_in(bob)) is Reason.SIGNATURE_MISMATCH
    assert await refused(ready.auth.get_caller(ready.call(token))) is Reason.CALLER_TOKEN_INVALID
    work = ready.auth.authorize_token(ready.call(), token)
    assert await refused(work) is Reason.CALLER_TOKEN_INVALID


async def test_users_rotate_only_their_own_keys(ready: World) -> None:
    bob = await ready.user("bob", "Analyst")
    carol = await ready.user("carol", "Analyst")
    call = ready.call(await ready.log_in(bob))
    second = await ready.auth.create_credential(call, description="new")
    assert second.credential.user_id == "bob"
    call = ready.call(await ready.log_in(second))
    await ready.auth.delete_credential(call, bob.credential.access_key_id)
    listed = (await ready.auth.list_credentials(call)).credentials
    assert [found.access_key_id for found in listed] == [second.credential.access_key_id]
    # A caller that may not delete a key does not learn whether it exists.
    for other in (carol.credential.access_key_id, "TARNUNKNOWNACCESSKEY"):
        work = ready.auth.delete_credential(call, other)
        assert await refused(work) is Reason.CREDENTIAL_NOT_FOUND
    forbidden: list[Awaitable[object]] = [
        ready.auth.create_credential(call, user_id="carol"),
        ready.auth.list_credentials(call, user_id="carol"),
        ready.auth.get_user(call, "carol"),
        ready.auth.update_user_roles(call, "bob", ["Admin"]),
        ready.auth.delete_user(call, "bob"),
    ]
    for denied in forbidden:
        assert await refused(denied) is Reason.ACCESS_DENIED
    await ready.log_in(carol)


async def test_an_admin_cannot_remove_its_own_user_role_or_key_in_use(ready: World) -> None:
    call = ready.call(ready.admin)
    own = (await ready.auth.list_credentials(call)).credentials[0].access_key_id
    for work in (
        ready.auth.delete_user(call, "root"),
        ready.auth.update_user_roles(call, "root", ["Developer"]),
        ready.auth.delete_credential(call, own),
    ):
        assert await refused(work) is Reason.ACCESS_DENIED
    assert (await ready.auth.get_caller(call)).user.user_id == "root"


async def test_a_user_has_at_most_a_hundred_keys(ready: World) -> None:
    await ready.user("bob", "Analyst")
    for _ in range(99):
        await ready.auth.create_credential(ready.call(ready.admin), user_id="bob")
    with pytest.raises(TarnError) as caught:
        await ready.auth.create_credential(ready.call(ready.admin), user_id="bob")
    assert caught.value.kind is Kind.EXHAUSTED


@pytest.mark.parametrize("description", ["x" * 257, "two\nlines"])
async def test_a_description_is_one_short_line(ready: World, description: str) -> None:
    work = ready.auth.create_credential(ready.call(ready.admin), description=description)
    assert await refused(work) is Reason.INVALID_ARGUMENT
