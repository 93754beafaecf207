"""Decisions of policies, and the names of resources."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.access.actions import (
    REPOSITORIES,
    USERS,
    Action,
    branches_resource,
    object_resource,
    ref_object_resource,
    repository_resource,
    user_resource,
)
from tarn.core.access.policy import (
    Grant,
    Policy,
    Role,
    Statement,
    compile_policy,
    decide,
    parse_roles,
    statements_of,
)
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import UserId


def test_nothing_is_allowed_by_default() -> None:
    assert not any(decide((), action, "repository/lake") for action in Action)


BRANCHES = branches_resource("lake")


@pytest.mark.parametrize(
    ("statements", "possible"),
    [
        ([(True, "*")], True),
        ([(True, "repository/*")], True),
        ([(True, "repository/la*")], True),
        ([(True, "repository/lake/branch/*")], True),
        ([(True, "repository/lake/branch/main/object/raw/*")], True),
        ([(True, "repository/lake/branch/main/object/a")], True),
        ([], False),
        ([(True, "repository/lake")], False),
        ([(True, "repository/lake2/*")], False),
        ([(True, "repository/lake/ref/*")], False),
        ([(True, "*"), (False, "repository/lake/*")], False),
        ([(True, "*"), (False, "repository/lake/branch/*")], False),
        ([(True, "*"), (False, "repository/lake/branch/main*")], True),
    ],
)
def test_an_action_may_be_allowed_below_a_prefix(
    statements: list[tuple[bool, str]], possible: bool
) -> None:
    made = [Statement(allow, ("WriteRepo",), (pattern,)) for allow, pattern in statements]
    assert Policy(made).may_allow(Action.WRITE_REPO, BRANCHES) is possible
    assert not Policy(made).may_allow(Action.READ_REPO, BRANCHES)


_NAMES = st.text("ab/", max_size=4)
_STATEMENTS = st.lists(
    st.builds(
        lambda allow, name, end: Statement(allow, ("*",), (name + end,)),
        st.booleans(),
        _NAMES,
        st.sampled_from(("", "*")),
    ),
    max_size=4,
)


@given(_STATEMENTS, _NAMES, _NAMES)
def test_what_is_allowed_may_be_allowed(
    statements: list[Statement], prefix: str, rest: str
) -> None:
    """The first check refuses no request of which the second would allow a part."""
    policy = Policy(statements)
    if policy.allows(Action.WRITE_REPO, prefix + rest):
        assert policy.may_allow(Action.WRITE_REPO, prefix)


@given(_STATEMENTS, _NAMES, _NAMES)
def test_what_allows_all_allows_each(statements: list[Statement], prefix: str, rest: str) -> None:
    policy = Policy(statements)
    if policy.allows_all(Action.WRITE_REPO, prefix):
        assert policy.allows(Action.WRITE_REPO, prefix + rest)


def test_all_is_allowed_by_one_pattern_that_no_denial_meets() -> None:
    allow = Statement(True, ("*",), ("repository/lake/*",))
    deny = Statement(False, ("*",), ("repository/lake/branch/main/object/a",))
    branch = "repository/lake/branch/{}/object/"
    assert Policy([allow]).allows_all(Action.WRITE_REPO, branch.format("main"))
    assert Policy([allow, deny]).allows_all(Action.WRITE_REPO, branch.format("dev"))
    assert not Policy([allow, deny]).allows_all(Action.WRITE_REPO, branch.format("main"))
    assert not Policy([deny]).allows_all(Action.WRITE_REPO, branch.format("dev"))


def test_deny_beats_allow_in_any_order() -> None:
    allow = Statement(True, ("*",), ("*",))
    deny = Statement(False, ("Write*",), ("repository/lake/branch/main*",))
    for statements in ((allow, deny), (deny, allow)):
        assert not decide(statements, Action.WRITE_REPO, object_resource("lake", "main", "a"))
        assert decide(statements, Action.WRITE_REPO, object_resource("lake", "dev", "a"))
        assert decide(statements, Action.READ_REPO, object_resource("lake", "main", "a"))


@pytest.mark.parametrize(
    ("pattern", "resource", "allowed"),
    [
        ("repository/lake", "repository/lake", True),
        ("repository/lake", "repository/lake2", False),
        ("repository/lake/*", "repository/lake", False),
        ("repository/lake/*", "repository/lake/branch/main", True),
        ("repository/lake*", "repository/lake2", True),
        (
            "repository/lake/branch/main/object/raw/*",
            object_resource("lake", "main", "raw/x"),
            True,
        ),
        (
            "repository/lake/branch/main/object/raw/*",
            object_resource("lake", "main", "rawx"),
            False,
        ),
        ("*", "user/bob", True),
        ("", "repository/lake", False),
    ],
)
def test_patterns_match_whole_names_or_by_their_beginning(
    pattern: str, resource: str, allowed: bool
) -> None:
    statements = (Statement(True, ("ReadRepo",), (pattern,)),)
    assert decide(statements, Action.READ_REPO, resource) is allowed


@pytest.mark.parametrize("pattern", ["a*b", "**", "*/main"])
def test_a_wildcard_inside_a_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(TarnError, match="before its end") as caught:
        Statement(False, ("*",), (pattern,))
    assert caught.value.kind is Kind.INVALID


_patterns = st.sampled_from(["*", "a*", "ab*", "a", "ab", "b", ""])
_statements = st.builds(
    Statement,
    st.booleans(),
    st.lists(st.sampled_from(["*", "Read*", "ReadRepo", "WriteRepo"]), max_size=3).map(tuple),
    st.lists(_patterns, max_size=3).map(tuple),
)


def matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


@given(
    st.lists(_statements, max_size=4), st.sampled_from(Action), st.sampled_from(["a", "ab", "b"])
)
def test_a_compiled_policy_decides_as_the_rule_says(
    statements: list[Statement], action: Action, resource: str
) -> None:
    hits = [
        statement.allow
        for statement in statements
        if any(matches(pattern, action.value) for pattern in statement.actions)
        and any(matches(pattern, resource) for pattern in statement.resources)
    ]
    policy = Policy(statements)
    assert policy.allows(action, resource) is (bool(hits) and all(hits))
    deciding = [each.allow for each in policy.deciding(action, resource)]
    assert deciding == (
        [] if not hits else [True] * len(hits) if all(hits) else [False] * hits.count(False)
    )


def test_the_roles_allow_what_the_documentation_says() -> None:
    repository = repository_resource("lake")
    main = "repository/lake/branch/main"
    table = {
        Role.ADMIN: set(Action),
        Role.DEVELOPER: {
            Action.LIST_REPOS,
            Action.READ_REPO,
            Action.WRITE_REPO,
            Action.COMPACT_REPO,
        },
        Role.ANALYST: {Action.LIST_REPOS, Action.READ_REPO},
    }
    for role, allowed in table.items():
        policy = compile_policy(statements_of([role], UserId("bob")))
        for resource in (repository, main, REPOSITORIES):
            assert {action for action in Action if policy.allows(action, resource)} == allowed


@pytest.mark.parametrize("role", [Role.DEVELOPER, Role.ANALYST])
def test_users_manage_only_their_own_keys(role: Role) -> None:
    policy = compile_policy(statements_of([role], UserId("bob")))
    own = {Action.READ_USERS, Action.MANAGE_CREDENTIALS}
    assert {a for a in Action if policy.allows(a, user_resource("bob"))} == own
    for other in (user_resource("bobby"), user_resource("alice"), USERS):
        assert not any(policy.allows(action, other) for action in Action)


def test_roles_are_parsed_once_each_and_unknown_ones_are_named() -> None:
    assert parse_roles(["Analyst", "Admin", "Admin"]) == (Role.ADMIN, Role.ANALYST)
    with pytest.raises(TarnError) as caught:
        parse_roles(["Admin", "Root"])
    assert caught.value.reason is Reason.ROLE_NOT_FOUND


def test_a_user_without_roles_manages_its_own_keys_and_nothing_else() -> None:
    policy = compile_policy(statements_of(parse_roles([]), UserId("bob")))
    own = {Action.READ_USERS, Action.MANAGE_CREDENTIALS}
    assert {each for each in Action if policy.allows(each, user_resource("bob"))} == own
    for resource in (USERS, REPOSITORIES, repository_resource("lake"), user_resource("alice")):
        assert not any(policy.allows(each, resource) for each in Action)


@pytest.mark.parametrize("name", ["", "a/b", "main/object/x"])
def test_a_name_with_a_slash_is_no_resource(name: str) -> None:
    for build in (repository_resource, user_resource):
        with pytest.raises(TarnError):
            build(name)
    with pytest.raises(TarnError):
        ref_object_resource("lake", name, "x")
    with pytest.raises(TarnError):
        object_resource("lake", name, "x")


def test_a_grant_names_who_was_denied_what_and_never_shows_its_token() -> None:
    grant = Grant(UserId("bob"), Policy(()), "t1.secret", 1000)
    with pytest.raises(TarnError) as caught:
        grant.require(Action.READ_REPO, "repository/lake")
    assert caught.value.metadata == {
        "user_id": "bob",
        "action": "ReadRepo",
        "resource": "repository/lake",
    }
    assert "secret" not in repr(grant)
