"""Whether a user may do something: who may ask, and that the answer is what is enforced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tarn.core.access.actions import Action
from tarn.core.errors import Kind, Reason, TarnError

if TYPE_CHECKING:
    from tests.unit.auth.conftest import World

RESOURCES = [
    "repository/*",
    "repository/lake",
    "repository/lake/branch/main/object/a/b",
    "repository/lake/ref/main/object/\n<script>",
    "bucket/b",
    "user/*",
    "user/ada",
    "user/ada/session/*",
    "compactor/*",
    "quota/user/ada",
]


@pytest.mark.parametrize("role", ["Admin", "Developer", "Analyst"])
async def test_the_answer_is_what_the_grant_of_the_user_enforces(ready: World, role: str) -> None:
    made = await ready.user("ada", role)
    token = await ready.log_in(made)
    grant = await ready.auth.authorize_token(ready.call(), token)
    for action in Action:
        for resource in RESOURCES:
            found = await ready.auth.check_access(
                ready.call(ready.admin), action, resource, user_id="ada"
            )
            assert found.is_allowed is grant.allows(action, resource), (action, resource)
            assert found.is_allowed is bool(found.deciding)
            assert {each.role for each in found.deciding} <= {"", role}
            assert all(each.statement.allow for each in found.deciding)
            own = await ready.auth.check_access(ready.call(token), action, resource)
            assert own == found


async def test_the_answer_names_each_role_that_allows_it(ready: World) -> None:
    await ready.auth.create_user(ready.call(ready.admin), "ada", ["Analyst", "Developer"])
    found = await ready.auth.check_access(
        ready.call(ready.admin), "ReadRepo", "repository/lake", user_id="ada"
    )
    assert [each.role for each in found.deciding] == ["Developer", "Analyst"]
    own = await ready.auth.check_access(
        ready.call(ready.admin), "ManageCredentials", "user/ada", user_id="ada"
    )
    assert [each.role for each in own.deciding] == [""]


async def test_a_change_of_roles_changes_the_answer_at_once(ready: World) -> None:
    admin = ready.call(ready.admin)
    await ready.auth.create_user(admin, "ada", ["Developer"])
    for roles, is_allowed in ((["Analyst"], False), (["Developer"], True), ([], False)):
        await ready.auth.update_user_roles(admin, "ada", roles)
        found = await ready.auth.check_access(
            admin, "WriteRepo", "repository/lake/branch/main", user_id="ada"
        )
        assert found.is_allowed is is_allowed


@pytest.mark.parametrize("role", ["Developer", "Analyst"])
async def test_nobody_but_an_admin_asks_about_others(ready: World, role: str) -> None:
    token = await ready.log_in(await ready.user("ada", role))
    for other in ("root", "nobody"):
        with pytest.raises(TarnError) as caught:
            await ready.auth.check_access(
                ready.call(token), "ReadRepo", "repository/lake", user_id=other
            )
        assert caught.value.reason is Reason.ACCESS_DENIED
    with pytest.raises(TarnError) as caught:
        await ready.auth.check_access(ready.call(), "ReadRepo", "repository/lake")
    assert caught.value.reason is Reason.CALLER_TOKEN_INVALID
    with pytest.raises(TarnError) as caught:
        await ready.auth.check_access(
            ready.call(ready.admin), "ReadRepo", "repository/lake", user_id="nobody"
        )
    assert caught.value.reason is Reason.USER_NOT_FOUND


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("", "repository/lake"),
        ("readrepo", "repository/lake"),
        ("*", "repository/lake"),
        ("ReadRepo", ""),
        ("ReadRepo", "lake"),
        ("ReadRepo", "repository/"),
        ("ReadRepo", "repository/lake/main"),
        ("ReadRepo", "repository/lake/branch/a/b"),
        ("ReadRepo", "secret/x"),
        ("ReadRepo", "compactor/x"),
        ("ReadRepo", "repository/lake/ref/main/object/" + "x" * 1_600),
    ],
)
async def test_what_nothing_is_named_is_refused(ready: World, action: str, resource: str) -> None:
    with pytest.raises(TarnError) as caught:
        await ready.auth.check_access(ready.call(ready.admin), action, resource)
    assert caught.value.kind is Kind.INVALID
    assert len(caught.value.message) < 700
