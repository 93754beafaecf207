"""Decides whether a history keeps the promises of docs/design/protocol.md.

The invariants are those of facts/cassandra B3; linear time per key but for sorting.

- *I1 freshness*: an operation that returns a write w is stale if w was over before some other
  acknowledged write began that itself was over before the operation began. Reads, every key of a page,
  every key of a commit.
- *I2 no future*: what is returned was really asked for, before the answer, and did not surely fail.
- *I3 commit = listing*: each key of a commit obeys I1 and I2 for the commit's own interval; "nothing to
  commit: everything is in commit X" is a claim about X and is held to it.
- *I4 nothing acknowledged is lost*: the reads at the quiet end obey I1; acknowledged commits are in their
  branch's history, once, in the order in which they were made; failed ones are not.
- *I6 conditional*: a conditional write that was acknowledged saw what it expected, and that obeys I1 and
  I2; between two acknowledged creations of a key something emptied it, and a value was written as often
  as conditional writes replaced it. What a refused one saw obeys I1 and I2 as any read. An unconditional
  write that meets a seal is written again: replaced meanwhile, it comes back, as if it had come last.
- *I7*: crashes, token drops and restarts are no operations, so whatever they change is a violation of the
  others.
- *I9 no dangling address*.

Creating a branch is a write of every key, removing it too; so "a re-created branch shows no old write" is
I1. Writes that failed "surely" are no writes: if one is seen, that is a violation of I2. Not reported but
counted, because they are allowed: unsettled writes that are seen, and reads that go back to an older of
several concurrent writes (1-3-2, B-A-N-A-N-A).
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tarn.testing.history import ABSENT, GONE, NEVER, History, Op, OpKind, Outcome, shown

__all__ = ["Report", "Violation", "check"]

_STORY_MAX = 60


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken.

    Attributes:
        invariant: `I1` …
        text: one sentence.
        story: the operations on the key, in the order in which they began.
    """

    invariant: str
    text: str
    story: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(
            [f"{self.invariant}: {self.text}", *(f"    {line}" for line in self.story)]
        )


@dataclass
class Report:
    """What the checker found.

    Attributes:
        violations: empty if all promises were kept.
        statistics: how much was done, and how often what is odd but allowed was seen.
    """

    violations: list[Violation] = field(default_factory=list)
    statistics: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Write:
    """A value that a key had, or may have had."""

    value: int
    inv: float
    ret: float
    op: Op


@dataclass(frozen=True, slots=True)
class _Read:
    """A value that somebody was told."""

    value: int
    inv: float
    ret: float
    op: Op
    invariant: str


class _Writes:
    """The writes of one key, ready to be asked."""

    def __init__(self, writes: Sequence[_Write]) -> None:
        acked = sorted((w for w in writes if w.ret != NEVER), key=lambda w: w.ret)
        self._rets = [w.ret for w in acked]
        self._newest: list[_Write] = []
        for write in acked:
            last = self._newest[-1] if self._newest else write
            self._newest.append(write if write.inv >= last.inv else last)
        self._by_value: dict[int, list[_Write]] = defaultdict(list)
        for write in writes:
            self._by_value[write.value].append(write)

    def newest_before(self, time: float) -> _Write | None:
        """Of the acknowledged writes that were over before `time`, the one that began last."""
        count = bisect_left(self._rets, time)
        return self._newest[count - 1] if count else None

    def candidate(self, value: int, before: float) -> _Write | None:
        """Of the writes of a value that began before a time, the one that was over last."""
        fitting = [w for w in self._by_value.get(value, ()) if w.inv < before]
        return max(fitting, key=lambda w: w.ret, default=None)

    def emptying(self) -> Iterator[_Write]:
        """The writes after which the key holds nothing."""
        yield from self._by_value.get(ABSENT, ())
        yield from self._by_value.get(GONE, ())

    def of(self, value: int) -> Sequence[_Write]:
        """The writes of a value."""
        return self._by_value.get(value, ())

    def __contains__(self, value: int) -> bool:
        return value in self._by_value


def check(history: History) -> Report:
    """Holds a history to the invariants."""
    report = Report()
    for op in history.ops:
        report.statistics[f"{op.kind} {op.outcome}"] += 1
        if op.expected is not None:
            report.statistics[f"{op.kind} {op.outcome} of these conditional"] += 1
    branches = {op.branch for op in history.ops}
    keys = {op.key for op in history.ops if op.key is not None}
    keys |= {key for commit in history.commits.values() for key in commit.contents}
    for branch in sorted(branches):
        of_branch = [op for op in history.ops if op.branch == branch]
        commits = [*_commits_of(history, branch, of_branch, report)]
        by_key = _by_key(of_branch)
        for key in sorted(keys):
            _check_key(history, branch, key, by_key(key), commits, report)
        _check_chain(history, branch, of_branch, report)
    report.violations += [Violation("I9", text) for text in history.dangling]
    return report


def _by_key(ops: Sequence[Op]) -> Callable[[str], Sequence[Op]]:
    """The operations on one key and on all keys, in order: each key looks at no others."""
    own: defaultdict[str | None, list[Op]] = defaultdict(list)
    for op in ops:
        own[op.key].append(op)
    return lambda key: sorted([*own[None], *own[key]], key=lambda op: op.number)


def _writes_of(history: History, key: str, ops: Iterable[Op]) -> Iterator[_Write]:
    for op in ops:
        if op.outcome is Outcome.FAIL:
            continue
        if op.kind in {OpKind.PUT, OpKind.DELETE} and op.key == key:
            assert op.value is not None, "a write has a value"
            yield _Write(op.value, op.inv, op.ret, op)
        elif op.kind is OpKind.REMOVE:
            yield _Write(GONE, op.inv, op.ret, op)
        elif op.kind is OpKind.CREATE:
            source = history.commits.get(op.commit_id)
            contents = source.contents if source is not None else {}
            yield _Write(contents.get(key, ABSENT), op.inv, op.ret, op)


def _commits_of(
    history: History, branch: str, ops: Sequence[Op], report: Report
) -> Iterator[tuple[Op, str, float]]:
    """Commits of a branch whose contents are held to I3: those that were acknowledged, and those whose
    answer was lost but that are in its history (they may have ended at any time)."""
    by_message = {history.commits[c].message: c for c in history.chain(branch)}
    for op in ops:
        if op.kind is not OpKind.COMMIT:
            continue
        if op.commit_id:
            if op.commit_id in history.commits:
                yield op, op.commit_id, op.end
            elif not any(o.kind is OpKind.REMOVE and o.ret > op.inv for o in ops):
                text = f"commit {op.commit_id} was acknowledged and cannot be read"
                report.violations.append(Violation("I4", text, (op.line(),)))
        elif op.outcome is Outcome.INFO and f"#{op.number}" in by_message:
            report.statistics["lost answers of commits that were made"] += 1
            yield op, by_message[f"#{op.number}"], NEVER


def _reads_of(
    history: History, key: str, ops: Sequence[Op], commits: Sequence[tuple[Op, str, float]]
) -> Iterator[_Read]:
    for op in ops:
        if op.kind in {OpKind.GET, OpKind.LIST} and op.is_ok and op.key in {key, None}:
            assert op.value is not None, "a read has a value"
            yield _Read(op.value, op.inv, op.end, op, "I1")
        elif op.kind is OpKind.PUT and op.key == key and op.expected is not None:
            if op.is_ok:
                yield _Read(op.expected, op.inv, op.end, op, "I6")
            elif op.observed is not None:
                yield _Read(op.observed, op.inv, op.end, op, "I1")
    for op, commit_id, end in commits:
        value = history.commits[commit_id].contents.get(key, ABSENT)
        yield _Read(value, op.inv, end, op, "I3")


def _check_key(
    history: History,
    branch: str,
    key: str,
    ops: Sequence[Op],
    commits: Sequence[tuple[Op, str, float]],
    report: Report,
) -> None:
    writes = _Writes([*_writes_of(history, key, ops)])
    reads = sorted(_reads_of(history, key, ops, commits), key=lambda read: read.inv)
    for read in reads:
        problem = _problem(writes, read)
        if problem is None:
            continue
        invariant, text = problem
        story = _story(key, ops, read.op)
        text = f"{branch}/{key}: #{read.op.number} {read.op.kind} has {shown(read.value)}{text}"
        report.violations.append(Violation(invariant, text, story))
        break  # the first one of a key explains the others
    _check_conditional(branch, key, ops, writes, report)
    _count_oddities(writes, reads, report)


def _problem(writes: _Writes, read: _Read) -> tuple[str, str] | None:
    found = writes.candidate(read.value, read.ret)
    if found is None:
        if read.value in writes:
            return "I2", ", which was written only later"
        return "I2", ", which nobody wrote, or whose write surely failed"
    newest = writes.newest_before(read.inv)
    if newest is not None and found.ret < newest.inv:
        return (
            read.invariant,
            f" of #{found.op.number}, but #{newest.op.number} ({shown(newest.value)}) was "
            f"acknowledged at {newest.ret:.0f}, before the read began at {read.inv:.0f}",
        )
    return None


def _check_conditional(
    branch: str, key: str, ops: Sequence[Op], writes: _Writes, report: Report
) -> None:
    """I6: no two winners of one state of a key."""
    won = [op for op in ops if op.key == key and op.expected is not None and op.is_ok]
    creations = sorted((op for op in won if op.expected == ABSENT), key=lambda op: op.inv)
    for first, second in itertools.pairwise(creations):
        begin, end = first.inv, max(first.end, second.end)
        if not any(w.inv < end and w.ret > begin for w in writes.emptying()):
            text = f"{branch}/{key}: #{first.number} and #{second.number} both created it"
            report.violations.append(Violation("I6", text, _story(key, ops, second)))
    for value, count in Counter(op.expected for op in won if op.expected != ABSENT).items():
        assert value is not None, "it was expected"
        both = [op for op in won if op.expected == value]
        comebacks = sum(_comebacks(write, both, ops) for write in writes.of(value))
        if comebacks and count > len(writes.of(value)):
            report.statistics["replaced writes that came back"] += 1
        if count > len(writes.of(value)) + comebacks:
            numbers = ", ".join(f"#{op.number}" for op in both)
            text = f"{branch}/{key}: {numbers} replaced {shown(value)}"
            report.violations.append(Violation("I6", text, _story(key, ops, both[-1])))


def _comebacks(write: _Write, winners: Sequence[Op], ops: Sequence[Op]) -> int:
    """How often a write may have come back after one of the winners had replaced it.

    Rule 1: its row went to a token that was sealed meanwhile, so it is written to the next one, over what
    was put there by those who had seen it. That takes a winner and a commit beside the write, each time.
    """
    if write.op.kind is not OpKind.PUT or write.op.expected is not None:
        return 0
    replaced = sum(op.inv < write.ret for op in winners)
    commits = [op for op in ops if op.kind is OpKind.COMMIT and op.inv < write.ret]
    seals = sum(op.outcome is Outcome.INFO or op.end > write.inv for op in commits)
    return min(replaced, seals)


def _story(key: str, ops: Sequence[Op], about: Op) -> tuple[str, ...]:
    told = [op for op in ops if op.key in {key, None} and op.inv <= about.end]
    lines = [("→ " if op is about else "  ") + op.line() for op in told]
    if len(lines) > _STORY_MAX:
        lines = [f"({len(lines) - _STORY_MAX} operations before)", *lines[-_STORY_MAX:]]
    return tuple(lines)


def _count_oddities(writes: _Writes, reads: Sequence[_Read], report: Report) -> None:
    for read in reads:
        found = writes.candidate(read.value, read.ret)
        if found is not None and found.ret == NEVER:
            report.statistics["reads of unsettled writes"] += 1
    gets = sorted((r for r in reads if r.invariant == "I1"), key=lambda read: read.ret)
    for first, second, third in zip(gets, gets[1:], gets[2:], strict=False):
        if first.value == third.value != second.value:
            report.statistics["reads that went back (B-A-N-A-N-A)"] += 1


def _check_chain(history: History, branch: str, ops: Sequence[Op], report: Report) -> None:
    """I4 for commits: acknowledged ones are in the history of their branch, in order, once."""
    chain = history.chain(branch)
    if not chain:
        return
    place = {commit_id: number for number, commit_id in enumerate(chain)}
    # A branch that was removed or created since began another history.
    turns = [op for op in ops if op.kind in {OpKind.REMOVE, OpKind.CREATE}]
    began = max((op.ret for op in turns if op.ret != NEVER), default=-1.0)
    is_settled = all(op.outcome is not Outcome.INFO for op in turns)
    messages = Counter(history.commits[c].message for c in chain)
    made = [op for op in ops if op.kind is OpKind.COMMIT]
    for op in made:
        if messages[f"#{op.number}"] > 1:
            text = f"{branch}: commit #{op.number} is in the history more than once"
            report.violations.append(Violation("I4", text, (op.line(),)))
        if op.outcome is Outcome.FAIL and messages[f"#{op.number}"]:
            text = f"{branch}: commit #{op.number} surely failed and is in the history"
            report.violations.append(Violation("I4", text, (op.line(),)))
    acked = [op for op in made if op.is_ok and op.commit_id and op.inv > began and is_settled]
    for op in acked:
        if op.commit_id not in place:
            text = f"{branch}: acknowledged commit {op.commit_id[:12]} is not in the history"
            story = tuple(other.line() for other in made)
            report.violations.append(Violation("I4", text, story))
    newest: Op | None = None  # of the commits that were over, the one nearest to the head
    by_end = sorted((op for op in acked if op.commit_id in place), key=lambda op: op.end)
    for op in sorted(by_end, key=lambda op: op.inv):
        while by_end and by_end[0].end < op.inv:
            over = by_end.pop(0)
            if newest is None or place[over.commit_id] < place[newest.commit_id]:
                newest = over
        if newest is not None and place[op.commit_id] > place[newest.commit_id]:
            text = f"{branch}: commit #{op.number} lies before #{newest.number}, which was over"
            report.violations.append(Violation("I4", text, (newest.line(), op.line())))
