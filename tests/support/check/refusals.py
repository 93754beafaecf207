"""Decides whether refusals are right (I11): what one says was true at some moment of its operation.

`CONDITIONS` has a row for each reason that operations of a history may be refused with. A reason without a row is never
right. Each condition is judged on every past that the other answers allow: an operation that runs beside others, or
beside one without an answer, may have met either state. So a condition fails only if no order of the operations
justifies the refusal. What the history does not show (the age of an address, an upload that was aborted) its recorder
notes in `Op.grounds`.

A head that a refusal names is a read of the head (`Versions.head_problem`), and a value that it names one of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tests.support.check.history import ABSENT, GONE, MERGES, NEVER, Op, OpKind, Outcome
from tests.support.check.past import Past

from tarn.core.errors import Reason

__all__ = ["CONDITIONS", "Condition", "wrong_refusals"]

_READS = frozenset({OpKind.GET, OpKind.LIST, OpKind.HEAD})
_STAGING = frozenset({OpKind.PUT, OpKind.DELETE})
_ALL = frozenset(OpKind)
_DISCARDS = frozenset({OpKind.RESET, OpKind.MOVE})


def _never(_: Past, __: Op) -> bool:
    return False


def _is_under_faults(past: Past, op: Op) -> bool:
    return op.inv < past.history.quiet_at


def _has_no_branch(past: Past, op: Op) -> bool:
    is_gone = past.may_be_gone(op, op.branch)
    return is_gone or (bool(op.source_branch) and past.may_be_gone(op, op.source_branch))


def _has_branch(past: Past, op: Op) -> bool:
    return past.may_exist(op)


def _is_dirty(past: Past, op: Op) -> bool:
    """Whether a key may have had a staged row that differs from the head."""
    heads = past.heads(op)
    if heads is None or (op.kind is OpKind.MOVE and op.is_forced):
        return heads is None
    contents = [past.history.commits[each].contents for each in heads]
    return any(
        write.op.kind in _STAGING and any(write.value != each.get(key, ABSENT) for each in contents)
        for key in past.all_keys()
        for write in past.writes(op.branch, key).between(op.inv, op.end)
    )


def _has_other_head(past: Past, op: Op) -> bool:
    if op.kind is OpKind.CREATE:
        return op.is_restore and past.is_beside(op, frozenset({OpKind.CREATE, OpKind.REMOVE}))
    if op.told_id:
        return op.told_id != op.expected_id
    heads = past.heads(op)
    return heads is None or any(each != op.expected_id for each in heads)


def _was_reset(past: Past, op: Op) -> bool:
    return any(
        each.branch == op.branch
        and each.kind in _DISCARDS
        and each.outcome is not Outcome.FAIL
        and each.inv < op.end
        and each.ret > op.inv
        for each in past.history.ops
    )


def _merges(past: Past, op: Op, is_met: Callable[[Past, Op, str, str], bool]) -> bool:
    """Whether a condition is met by one of the heads that an operation may have merged into, and one of the sources."""
    heads, sources = past.heads(op), past.sources(op)
    if heads is None or sources is None:
        return True
    commits = past.history.commits
    if op.kind is not OpKind.MERGE and any(
        each not in commits for each in commits[op.source_id].parents
    ):
        return True
    return any(is_met(past, op, head, source) for head in heads for source in sources)


def _conflicts(past: Past, op: Op, head: str, source: str) -> bool:
    return any(result is None for result, _ in past.versions.merge_results(op, head, source))


def _has_conflict(past: Past, op: Op) -> bool:
    return not op.choice and _merges(past, op, _conflicts)


def _changes_nothing(past: Past, op: Op, head: str, source: str) -> bool:
    results = past.versions.merge_results(op, head, source)
    return all(result == before for result, before in results)


def _has_nothing_to_commit(past: Past, op: Op) -> bool:
    return not op.allows_empty and _merges(past, op, _changes_nothing)


def _is_merged(past: Past, op: Op, head: str, source: str) -> bool:
    is_squashed = op.is_squash and _changes_nothing(past, op, head, source)
    return is_squashed or past.versions.contains(head, source)


def _has_nothing_to_merge(past: Past, op: Op) -> bool:
    return not op.allows_empty and _merges(past, op, _is_merged)


def _has_many_bases(past: Past, op: Op) -> bool:
    return _merges(
        past,
        op,
        lambda past, _, head, source: len(past.versions.merge_bases([head], source)) > 1,
    )


def _has_no_such_parent(past: Past, op: Op) -> bool:
    if op.kind not in MERGES or op.source_id not in past.history.commits:
        return False
    count = len(past.history.commits[op.source_id].parents)
    return op.parent_number > max(count, 1) or (count > 1 and not op.parent_number)


def _has_other_value(past: Past, op: Op) -> bool:
    if op.expected is None or op.key is None:
        return False
    if op.observed is not None:
        return op.observed != op.expected
    return any(
        write.value not in {op.expected, GONE}
        for write in past.writes(op.branch, op.key).between(op.inv, op.end)
    )


def _has_no_value(past: Past, op: Op) -> bool:
    if op.expected in {None, ABSENT} or op.key is None:
        return False
    if op.observed is not None:
        return op.observed == ABSENT
    writes = past.writes(op.branch, op.key).between(op.inv, op.end)
    return any(write.value == ABSENT for write in writes)


def _has_expired(past: Past, op: Op) -> bool:
    commits = past.history.commits
    named = {op.source_id, op.commit_id}
    if op.source_id in commits:
        named.update(commits[op.source_id].parents)  # a revert takes the entries of a parent
    return any(past.history.expired.get(each, NEVER) < op.end for each in named)


def _meets_others(past: Past, op: Op) -> bool:
    """Whether another operation may have changed the branch; a read is tried again also if a store is slow."""
    is_met = op.kind in _READS or past.is_beside(op, _ALL - _READS)
    return is_met and _is_under_faults(past, op)


@dataclass(frozen=True, slots=True)
class Condition:
    """When a reason is right.

    Attributes:
        kinds: the operations that it may refuse.
        text: what must have been true, in words.
        holds: whether it may have been true while the operation ran.
    """

    kinds: frozenset[OpKind]
    text: str
    holds: Callable[[Past, Op], bool]


_FAULTS = Condition(_ALL, "might a fault be injected", _is_under_faults)
_GONE = Condition(_ALL - _READS, "might the branch be missing", _has_no_branch)
_EXISTS = Condition(frozenset({OpKind.CREATE}), "might the branch exist", _has_branch)
_OTHER_VALUE = Condition(
    _STAGING,
    "might the key have another value than the expected one",
    _has_other_value,
)
_ADDRESS = Condition(frozenset({OpKind.PUT}), "had the address such an age", _never)
_VIEW = Condition(_ALL, "had the view been changed", _never)
_RIGHT = Condition(_ALL, "had the caller no right to it", _never)
_UPLOAD = Condition(frozenset({OpKind.PUT}), "had the upload such a state", _never)

CONDITIONS: Mapping[str, Condition] = {
    Reason.UNAVAILABLE: _FAULTS,
    Reason.DEADLINE_EXCEEDED: _FAULTS,
    Reason.OUTCOME_UNKNOWN: _FAULTS,
    Reason.OVERLOADED: _FAULTS,
    Reason.TOO_MANY_RETRIES: Condition(
        _ALL, "did another operation change the branch", _meets_others
    ),
    Reason.BRANCH_NOT_FOUND: _GONE,
    Reason.REPOSITORY_NOT_FOUND: _GONE,
    Reason.REF_NOT_FOUND: _GONE,
    Reason.BRANCH_EXISTS: _EXISTS,
    Reason.REPOSITORY_EXISTS: _EXISTS,
    Reason.BRANCH_DIRTY: Condition(
        MERGES | {OpKind.MOVE}, "might the branch have an uncommitted change", _is_dirty
    ),
    Reason.BRANCH_RESET: Condition(
        frozenset({OpKind.COMMIT}), "might a reset or a move of the branch run", _was_reset
    ),
    Reason.REF_MOVED: Condition(
        frozenset({OpKind.MOVE, OpKind.CREATE}),
        "might the head be another one than the expected one",
        _has_other_head,
    ),
    Reason.NOTHING_TO_MERGE: Condition(
        frozenset({OpKind.MERGE}), "might the head contain the source", _has_nothing_to_merge
    ),
    Reason.NOTHING_TO_COMMIT: Condition(
        frozenset({OpKind.REVERT, OpKind.PICK}),
        "might the result be equal to the head",
        _has_nothing_to_commit,
    ),
    Reason.MERGE_CONFLICT: Condition(MERGES, "might there be a conflict to refuse", _has_conflict),
    Reason.TOO_MANY_MERGE_BASES: Condition(
        frozenset({OpKind.MERGE}), "might there be several merge bases", _has_many_bases
    ),
    Reason.INVALID_ARGUMENT: Condition(
        frozenset({OpKind.REVERT, OpKind.PICK}),
        "did the request name a parent that the commit does not have",
        _has_no_such_parent,
    ),
    Reason.EXPIRED_COMMIT: Condition(
        MERGES | {OpKind.MOVE, OpKind.CREATE}, "might the commit have expired", _has_expired
    ),
    Reason.PRECONDITION_FAILED: _OTHER_VALUE,
    Reason.ENTRY_NOT_FOUND: Condition(
        _STAGING, "might the expected object be missing", _has_no_value
    ),
    Reason.ADDRESS_TOO_OLD: _ADDRESS,
    Reason.ADDRESS_IN_FUTURE: _ADDRESS,
    Reason.UPLOAD_NOT_FOUND: _UPLOAD,
    "InvalidPart": _UPLOAD,
    Reason.BUCKET_MOVED: _VIEW,
    Reason.BUCKET_NOT_FOUND: _VIEW,
    Reason.CALLER_TOKEN_INVALID: _RIGHT,
    Reason.ACCESS_DENIED: _RIGHT,
}
"""When each reason is right. A test compares the rows with the reasons that the code of these operations raises."""


def wrong_refusals(past: Past) -> Iterator[tuple[Op, str]]:
    """Yields the operations whose refusal is wrong, and why."""
    for op in past.history.ops:
        if op.is_ok:
            if op.is_claim and op.allows_empty:
                yield op, "says that there is nothing to commit, and may be empty"
        elif op.reason:
            problem = _problem(past, op)
            if problem:
                yield op, f"was refused with {op.reason}, but {problem}"
        elif op.outcome is Outcome.FAIL:
            yield op, "was refused without a reason"


def _problem(past: Past, op: Op) -> str:
    condition = CONDITIONS.get(op.reason)
    if condition is None:
        return "it is no reason for any operation"
    if op.kind not in condition.kinds:
        return f"that is no reason for a {op.kind}"
    if op.reason in op.grounds or condition.holds(past, op):
        return ""
    return f"never while it ran {condition.text}"
