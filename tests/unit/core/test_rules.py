"""Decisions about the rules of a repository."""

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.access.policy import Grant, Policy
from tarn.core.change_kind import PROTECTABLE, ChangeKind
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import UserId
from tarn.core.rules import ExemptUser, Protection, Rules

BLOCKS_WRITES = frozenset({ChangeKind.WRITE})
NAMES = st.text(alphabet="ab-._1", min_size=1, max_size=6)
PATTERNS = st.text(alphabet="ab-._1*?", min_size=1, max_size=4)


def caller(uid: bytes = b"u" * 16, *roles: str) -> Grant:
    return Grant(UserId("ann"), Policy(()), "", 1000, uid, roles)


def is_refused(rules: Rules, branch: str, kind: ChangeKind, by: Grant) -> bool:
    try:
        rules.require("lake", branch, kind, by)
    except TarnError as error:
        return error.kind is Kind.DENIED
    return False


@given(
    patterns=st.lists(PATTERNS, max_size=4, unique=True),
    branch=NAMES,
    kind=st.sampled_from(PROTECTABLE),
)
def test_a_change_is_refused_if_a_matching_protection_blocks_it(
    patterns: list[str], branch: str, kind: ChangeKind
) -> None:
    """Branch names have no slash, so a star matches as in the standard library."""
    protections = tuple(Protection(pattern, frozenset({kind})) for pattern in patterns)
    rules = Rules(protections)
    expected = any(fnmatch.fnmatchcase(branch, pattern) for pattern in patterns)
    for _ in range(2):  # the second answer is remembered
        assert is_refused(rules, branch, kind, caller()) is expected
    for other in ChangeKind:
        if other is not kind:
            assert not is_refused(rules, branch, other, caller())


@given(patterns=st.lists(PATTERNS, max_size=3), names=st.lists(NAMES, max_size=5), default=NAMES)
def test_hidden_are_the_branches_that_a_pattern_matches_but_not_the_default(
    patterns: list[str], names: list[str], default: str
) -> None:
    found = Rules(hidden=tuple(patterns)).are_hidden(names, default)
    assert found == [
        name != default and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        for name in names
    ]


def test_more_branches_than_are_remembered_are_judged() -> None:
    rules = Rules((Protection("b9*", BLOCKS_WRITES),))
    refused = [n for n in range(3000) if is_refused(rules, f"b{n}", ChangeKind.WRITE, caller())]
    assert refused == [n for n in range(3000) if str(n).startswith("9")]


def test_a_caller_without_a_uid_is_no_exempt_user() -> None:
    protection = Protection("*", BLOCKS_WRITES, (ExemptUser("ann", b""),))
    assert is_refused(Rules((protection,)), "main", ChangeKind.WRITE, caller(b""))


def test_a_read_only_repository_exempts_no_caller() -> None:
    free = Protection("*", frozenset(PROTECTABLE), (), frozenset({"Admin"}))
    rules = Rules((free,), is_read_only=True)
    admin = caller(b"u" * 16, "Admin")
    refused = {kind for kind in ChangeKind if is_refused(rules, "main", kind, admin)}
    assert refused == set(ChangeKind) - {ChangeKind.ALWAYS}


@pytest.mark.parametrize("kind", PROTECTABLE)
def test_the_error_names_branch_rule_caller_and_remedy(kind: ChangeKind) -> None:
    rules = Rules((Protection("ma*", frozenset({kind})),))
    with pytest.raises(
        TarnError, match=r"lake/main is protected against .* by the rule 'ma\*'; .*, or ask"
    ) as raised:
        rules.require("lake", "main", kind, caller())
    assert raised.value.reason is Reason.BRANCH_PROTECTED
    assert raised.value.metadata == {
        "repository": "lake",
        "branch": "main",
        "ref": "main",
        "rule": "ma*",
        "change": kind.value,
        "user_id": "ann",
    }
