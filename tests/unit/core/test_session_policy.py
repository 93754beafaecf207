"""The intersection of statements: it allows what both sides allow, and nothing else."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tarn.core.access.actions import Action
from tarn.core.access.policy import Role, Statement, decide, statements_of
from tarn.core.access.session_policy import intersect, permissions_for, session_statements
from tarn.core.ids import AccessKeyId, UserId

ACTIONS = ("*", "Read*", "ReadRepo", "WriteRepo", "ListRepos")
RESOURCES = ("*", "r/*", "r/a", "r/a/*", "r/ab", "r/b*", "user/x")
NAMES = ("r/", "r/a", "r/a/1", "r/ab", "r/b", "r/ba", "user/x", "other")

statements = st.lists(
    st.builds(
        Statement,
        st.sampled_from([True, True, False]),
        st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=3).map(tuple),
        st.lists(st.sampled_from(RESOURCES), min_size=1, max_size=3).map(tuple),
    ),
    max_size=4,
).map(tuple)


@given(statements, statements)
@example((Statement(True, ("*",), ("*",)),), (Statement(True, ("ReadRepo",), ("r/a/*",)),))
def test_an_intersection_allows_what_both_policies_allow(
    first: tuple[Statement, ...], second: tuple[Statement, ...]
) -> None:
    both = intersect(first, second)
    for action in (Action.READ_REPO, Action.WRITE_REPO, Action.LIST_REPOS, Action.READ_USERS):
        for name in NAMES:
            expected = decide(first, action, name) and decide(second, action, name)
            assert decide(both, action, name) is expected, (action, name)


def rights(role: Role, *places: tuple[str, str, str], read_only: bool = False) -> set[str]:
    """What a session key may do that is limited to some places."""
    user, key = UserId("ada"), AccessKeyId("TSES")
    own = session_statements(user, key, permissions_for(places, read_only=read_only))
    both = intersect(statements_of([role], user), own)
    names = (
        "repository/lake",
        "repository/lake/ref/main",
        "repository/lake/branch/main",
        "repository/lake/branch/main/object/raw/a",
        "repository/lake/ref/main/object/raw/a",
        "repository/lake/ref/main/object/b",
        "repository/lake/ref/mainly/object/raw/a",
        "repository/lakes/ref/main/object/raw/a",
    )
    actions = (Action.READ_REPO, Action.WRITE_REPO, Action.DELETE_REPO, Action.WRITE_RULES)
    return {
        f"{action.value[0]} {name.removeprefix('repository/')}"
        for action in actions
        for name in names
        if decide(both, action, name)
    }


def test_a_prefix_of_a_ref() -> None:
    found = rights(Role.ADMIN, ("lake", "main", "raw/"))
    assert found == {
        "R lake",
        "R lake/branch/main/object/raw/a",
        "R lake/ref/main/object/raw/a",
        "W lake/branch/main/object/raw/a",
        "W lake/ref/main/object/raw/a",
    }
    assert rights(Role.ANALYST, ("lake", "main", "raw/")) == {f for f in found if f[0] == "R"}


def test_a_ref_with_its_commits() -> None:
    found = rights(Role.DEVELOPER, ("lake", "main", ""), read_only=True)
    assert found == {
        "R lake",
        "R lake/ref/main",
        "R lake/branch/main",
        "R lake/branch/main/object/raw/a",
        "R lake/ref/main/object/raw/a",
        "R lake/ref/main/object/b",
    }


def test_a_repository() -> None:
    found = rights(Role.DEVELOPER, ("lake", "", ""))
    assert not {each for each in found if "lakes" in each}
    assert "W lake/branch/main" in found


def test_everywhere_read_only() -> None:
    found = rights(Role.ADMIN, read_only=True)
    assert {each[0] for each in found} == {"R"}
    assert "R lakes/ref/main/object/raw/a" in found
