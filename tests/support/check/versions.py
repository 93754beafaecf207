"""Recomputes what merges, moves and resets must do, from the commits that a history records.

- *I8 merge*: every commit that a merge, revert or cherry-pick built holds the three-way result of its base, its source
  and its first parent. The merge bases are found by comparing all ancestors, and the result path by path.
- *The head is a register*: commits, merges and moves compare and set it. A commit expects its first parent, a
  move the head that its caller names. One order of them must explain the heads that clients were told and the head at
  the end (`tests.support.check.witness`).
- A reset leaves the value of a commit that may have been the head at that time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.support.check.effects import Effect, Reading, Seals
from tests.support.check.history import (
    ABSENT,
    GONE,
    MERGES,
    NEVER,
    Commit,
    History,
    Op,
    OpKind,
    Outcome,
    shown,
)
from tests.support.check.witness import explain

__all__ = ["HeadProblem", "Merged", "Versions"]

_MAKERS = MERGES | {OpKind.COMMIT}
_NOTHING: Mapping[str, int] = {}
_UNDECIDED = -2
"""Stands for the value of a key that is in conflict between several merge bases; no write has it."""
_LEVELS = 4
"""Folds of merge bases within folds; beyond, keys that differ are undecided."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The effect of an operation on a key.

    Attributes:
        value: the value that it leaves.
        replaces: the value of the former head; None if it replaces any value.
    """

    value: int
    replaces: int | None = None


@dataclass(frozen=True, slots=True)
class HeadProblem:
    """An answer about a head that no order of changes explains."""

    invariant: str
    op: Op
    text: str


class Versions:
    """The commits of a history, and the effects that the operations on them must have had."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._commits = history.commits
        self._by_message: defaultdict[str, list[str]] = defaultdict(list)
        for commit_id, commit in history.commits.items():
            self._by_message[commit.message].append(commit_id)
        self._reachable = self._ancestors(*history.heads.values())
        self._generations: dict[str, int] = {}
        self._reset_heads: dict[int, list[str]] = {}
        self._turns_of: dict[str, Sequence[tuple[Op, str]]] = {}

    def made_by(self, op: Op) -> list[str]:
        """Returns the commits of which an operation has published one, or may have.

        Of an operation without an answer these are all that it built; only one, if that is in a history.
        """
        if op.kind not in _MAKERS or op.is_claim or op.outcome is Outcome.FAIL:
            return []
        if op.commit_id:
            return [op.commit_id] if op.commit_id in self._commits else []
        built = self._by_message[f"#{op.number}"]
        return [each for each in built if each in self._reachable] or built

    def _contents(self, commit_id: str) -> Mapping[str, int]:
        commit = self._commits.get(commit_id)
        return _NOTHING if commit is None else commit.contents

    def merged(self, op: Op, key: str) -> Iterator[Merged]:
        """Yields the effects of a merge, move or reset on a key; of several, one at most happens.

        A merge that does not change a key in its commit does not write it.
        """
        if op.kind is OpKind.RESET:
            values = (self._contents(each).get(key, ABSENT) for each in self._heads_at(op))
            for value in dict.fromkeys(values) if op.covers(key) else ():
                yield Merged(value)
                # A row that expects the content that the reset leaves may lie on it anyway.
                yield from (
                    Merged(value, each) for each in self._hidden_by(op, key) if each != value
                )
        elif op.kind is OpKind.MOVE:
            value = self._contents(op.commit_id).get(key, ABSENT)
            before = self._contents(op.expected_id).get(key, ABSENT)
            if op.is_forced:
                yield Merged(value)
            elif value != before:
                yield Merged(value, before)
        else:
            found: dict[Merged, None] = {}
            for commit_id in self.made_by(op):
                commit = self._commits[commit_id]
                before = self._contents(commit.parents[0]).get(key, ABSENT)
                found[Merged(commit.contents.get(key, ABSENT), before)] = None
            yield from (each for each in found if each.value != each.replaces)

    def _hidden_by(self, reset: Op, key: str) -> Iterator[int]:
        """Yields the values that the reset of a part may have replaced beneath a row that hid it from the start.

        Such a row is that of a conditional write which came after the seal and expects the value.
        """
        if reset.part:
            yield from dict.fromkeys(
                op.expected
                for op in self._history.ops
                if op.expected is not None
                and (op.branch, op.key) == (reset.branch, key)
                and op.outcome is not Outcome.FAIL
                and op.inv < reset.ret
                and op.ret > reset.inv
            )

    def is_moving_to(self, commit_id: str, op: Op) -> bool:
        """Whether a merge or an unforced move to a commit may have been under way while an operation was."""
        return any(
            each == commit_id and mover.inv < op.end and mover.ret > op.inv
            for mover, each in self._turns(op.branch)
            if mover.kind in MERGES or (mover.kind is OpKind.MOVE and not mover.is_forced)
        )

    # ---- heads

    def _turns(self, branch: str) -> Sequence[tuple[Op, str]]:
        """Returns the changes of a branch's head that happened or may have, and the new heads."""
        if branch not in self._turns_of:
            self._turns_of[branch] = [*self._turns_found(branch)]
        return self._turns_of[branch]

    def _turns_found(self, branch: str) -> Iterator[tuple[Op, str]]:
        for op in self._history.ops:
            if op.branch != branch or op.outcome is Outcome.FAIL:
                continue
            if op.kind in {OpKind.CREATE, OpKind.MOVE}:
                yield op, op.commit_id
            for commit_id in self.made_by(op):
                yield op, commit_id

    def _heads_at(self, reset: Op) -> list[str]:
        """Returns the commits that may have been the head at some moment of an operation."""
        found = self._reset_heads.get(reset.number)
        if found is None:
            heads = self._heads(reset.branch, reset.inv, reset.ret)
            found = self._reset_heads[reset.number] = heads
        return found

    def _heads(self, branch: str, begin: float, end: float) -> list[str]:
        turns = self._turns(branch)
        over = [op.inv for op, _ in turns if op.ret < begin]
        newest = max(over, default=-NEVER)
        heads = (each for op, each in turns if op.inv < end and op.ret >= newest)
        return [*dict.fromkeys(heads)]

    def heads_between(self, branch: str, begin: float, end: float) -> list[str] | None:
        """Returns the commits that may have been the head of a branch at some moment between two times; None if one of
        them is unknown."""
        for op in self._history.ops:
            is_lost = op.is_ok or (op.outcome is Outcome.INFO and bool(self._history.unread))
            if op.branch != branch or op.inv >= end or not is_lost:
                continue
            if op.kind in _MAKERS and not op.is_claim and not self.made_by(op):
                return None
        root = self._root(branch)
        heads = [each or root for each in self._heads(branch, begin, end)]
        return heads if all(each in self._commits for each in heads) else None

    def contains(self, commit_id: str, other_id: str) -> bool:
        """Whether a commit is another one, or descends from it."""
        return other_id in self._ancestors(commit_id)

    def merge_results(
        self, op: Op, dest_id: str, source_id: str
    ) -> Iterator[tuple[int | None, int]]:
        """Yields, for each path, what a merge, revert or cherry-pick onto a head makes of it, and what the head has.

        A conflict without a choice is None."""
        base, source = self._sides_onto(op, dest_id, source_id)
        dest = self._contents(dest_id)
        for key in sorted({*base, *source, *dest}):
            old, new, ours = (each.get(key, ABSENT) for each in (base, source, dest))
            yield _three_way(old, new, ours, op.choice), ours

    def _sides_onto(
        self, op: Op, dest_id: str, source_id: str
    ) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Returns the contents of base and source."""
        if op.kind is OpKind.MERGE:
            bases = self.merge_bases([dest_id], source_id)
            return self._folded(bases), self._contents(source_id)
        parents = self._commits[op.source_id].parents
        parent = self._contents(parents[max(op.parent_number, 1) - 1]) if parents else _NOTHING
        picked = self._contents(op.source_id)
        return (picked, parent) if op.kind is OpKind.REVERT else (parent, picked)

    def head_problem(self, branch: str) -> HeadProblem | None:
        """Finds an answer that no order of the changes of a branch's head explains.

        Repositories that are removed and re-created are not checked, because they have several histories; nor are
        histories whose commits name no parents.
        """
        ops = [op for op in self._history.ops if op.branch == branch]
        made = (commit_id for op in ops for commit_id in self.made_by(op))
        if any(op.is_stepwise and op.kind is OpKind.REMOVE for op in ops):
            return None
        if not all(self._commits[commit_id].parents for commit_id in made):
            return None
        numbers: defaultdict[str, int] = defaultdict(lambda: len(numbers) + 1)
        root = self._root(branch)
        effects = []
        for op, commit_id in self._turns(branch):
            before = None
            if op.kind is OpKind.MOVE:
                before = numbers[op.expected_id]
            elif op.kind is not OpKind.CREATE:
                before = numbers[self._commits[commit_id].parents[0]]
            effects.append(Effect(numbers[commit_id or root], op, before))
        effects += [
            Effect(GONE, op)
            for op in ops
            if op.kind is OpKind.REMOVE and op.outcome is not Outcome.FAIL
        ]
        readings = [
            Reading(numbers[head] if head else GONE, op.inv, op.end, op)
            for op, head in self._told(branch)
        ]
        verdict = explain(effects, readings, Seals([]))
        if verdict.failed is None:
            return None
        return self._told_as(verdict.failed)

    def _told(self, branch: str) -> Iterator[tuple[Op, str]]:
        """Yields the answers that say which commit was the head of a branch; empty if there was no branch."""
        for op in self._history.ops:
            if op.branch == branch and op.told_id:
                yield op, op.told_id
            if not op.is_ok:
                continue
            if op.branch == branch and (op.is_claim or op.kind is OpKind.HEAD):
                yield op, op.commit_id
            elif op.kind is OpKind.MERGE and op.source_branch == branch:
                commit = self._commits.get(op.commit_id)
                if commit is not None and len(commit.parents) > 1:
                    yield op, commit.parents[1]
        if branch in self._history.heads:
            clock = float(max(self._history.clock, *(op.inv for op in self._history.ops))) + 1
            ended = (op.end for op in self._history.ops if op.end != NEVER)
            clock = max(clock, max(ended, default=0.0) + 1)
            last = Op(
                len(self._history.ops), "end", OpKind.HEAD, branch, None, None, clock, clock + 1
            )
            last.end, last.outcome = clock + 1, Outcome.OK
            last.commit_id = self._history.heads[branch]
            yield last, last.commit_id

    def _root(self, branch: str) -> str:
        """Returns the first commit of a branch's repository."""
        at = self._history.heads.get(branch, "")
        while at in self._commits and self._commits[at].parents:
            at = self._commits[at].parents[0]
        return at

    @staticmethod
    def _told_as(op: Op) -> HeadProblem:
        invariant = "I8" if op.kind in MERGES else "I5" if op.kind is OpKind.MOVE else "I4"
        told = (op.told_id or op.commit_id)[:12]
        text = (
            f"{op.branch}: #{op.number} {op.kind} has commit {told}, and no order of the changes of the "
            "head explains it with the answers before it: each expects its first parent, or the head that it names"
        )
        return HeadProblem(invariant, op, text)

    # ---- I8

    def merge_problems(self) -> Iterator[tuple[Op, str]]:
        """Yields the defects of the commits of merges, reverts and cherry-picks."""
        for op in self._history.ops:
            if op.kind not in MERGES:
                continue
            if op.is_ok and op.commit_id not in self._by_message[f"#{op.number}"]:
                yield op, f"was told commit {op.commit_id[:12]}, which it has not made"
            for commit_id in self._by_message[f"#{op.number}"]:
                problem = self._merge_problem(op, self._commits[commit_id])
                if problem:
                    yield op, f"made commit {commit_id[:12]}: {problem}"

    def _merge_problem(self, op: Op, commit: Commit) -> str:
        wanted = 2 if op.kind is OpKind.MERGE and not op.is_squash else 1
        if len(commit.parents) != wanted:
            return f"it has {len(commit.parents)} parents, not {wanted}"
        sides = self._sides(op, commit)
        if sides is None:
            return "its parents are not the commits that it was made of"
        base, source = sides
        dest = self._contents(commit.parents[0])
        for key in sorted({*base, *source, *dest, *commit.contents}):
            old, new, ours = (each.get(key, ABSENT) for each in (base, source, dest))
            result = _three_way(old, new, ours, op.choice)
            found = commit.contents.get(key, ABSENT)
            if result != found:
                before = "undecided" if old == _UNDECIDED else shown(old)
                told = f"base {before}, source {shown(new)}, dest {shown(ours)}"
                due = "a conflict" if result is None else shown(result)
                return f"{key} is {shown(found)}, not {due} ({told})"
        return ""

    def _sides(self, op: Op, commit: Commit) -> tuple[Mapping[str, int], Mapping[str, int]] | None:
        """Returns the contents of base and source; None if the commit was not made of those of its operation."""
        source_id = op.source_id or commit.parents[-1]
        if op.kind is OpKind.MERGE and not op.is_squash and commit.parents[1] != source_id:
            return None
        return self._sides_onto(op, commit.parents[0], source_id)

    def merge_bases(self, lefts: Sequence[str], right: str) -> list[str]:
        """Returns the common ancestors that no other one descends from.

        They are ordered by the greatest generation, then the latest time, then the smallest id.
        """
        common = self._ancestors(*lefts) & self._ancestors(right)
        # All ancestors of a common ancestor are common ones, so it is enough to look at parents.
        common -= {parent for each in common for parent in self._commits[each].parents}
        return sorted(
            common,
            key=lambda each: (-self._generation(each), -self._commits[each].create_time_us, each),
        )

    def _folded(self, bases: Sequence[str], level: int = 1) -> Mapping[str, int]:
        """Returns the base of a merge: of one merge base its contents; of several, their merge, one after the other."""
        result = self._contents(bases[0] if bases else "")
        for at in range(1, len(bases)):
            below = self.merge_bases(bases[:at], bases[at])
            is_known = len(below) < 2 or level < _LEVELS
            base = self._folded(below, level + 1) if is_known else None
            result = _fold(base, result, self._contents(bases[at]))
        return result

    def _ancestors(self, *starts: str) -> set[str]:
        """Returns the commits that are reachable from some, with these."""
        found: set[str] = set()
        left = [*starts]
        while left:
            commit_id = left.pop()
            if commit_id in self._commits and commit_id not in found:
                found.add(commit_id)
                left += self._commits[commit_id].parents
        return found

    def _generation(self, commit_id: str) -> int:
        order: Sequence[str] = [commit_id]
        while order:
            at = order[-1]
            parents = [each for each in self._commits[at].parents if each in self._commits]
            missing = [each for each in parents if each not in self._generations]
            if missing:
                order = [*order, *missing]
                continue
            above = (self._generations[each] for each in parents)
            self._generations[at] = 1 + max(above, default=-1)
            order = order[:-1]
        return self._generations[commit_id]


def _fold(
    base: Mapping[str, int] | None, left: Mapping[str, int], right: Mapping[str, int]
) -> Mapping[str, int]:
    """Returns the merge of two merge bases; without a base, all keys that differ are undecided."""
    result: dict[str, int] = {}
    for key in {*left, *right}:
        ours, theirs = left.get(key, ABSENT), right.get(key, ABSENT)
        new: int | None = _UNDECIDED
        if _UNDECIDED not in (ours, theirs):
            old = _UNDECIDED if base is None else base.get(key, ABSENT)
            new = _three_way(old, ours, theirs, "")
        result[key] = _UNDECIDED if new is None else new
    return result


def _three_way(base: int, source: int, dest: int, choice: str) -> int | None:
    """Returns the merged value of a path; None for a conflict without a choice."""
    if source == base:
        return dest
    if dest in (base, source):
        return source
    return {"source": source, "dest": dest}.get(choice)
