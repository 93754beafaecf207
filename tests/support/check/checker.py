"""Decides whether a history keeps the promises of docs/design/protocol.md.

The invariants are listed in docs/design/simulation.md, "Invariants". Each key of each branch is checked
twice:
first one read and one write at a time, which gives the clearest reports; then all of them together
(`tests.support.check.witness`): some order of effects must explain every answer, and in it no write may
take effect more often than the protocol allows.

- *I1 freshness*: an operation that returns a write w is stale if w had ended before another acknowledged
  write began, and that write had ended before the operation began; or if no order of effects explains it.
  This holds for reads, for every key of a page, and for every key of a commit
  (`tests.support.check.pages` for lines that stand for others, or are left out).
- *I2 no future*: a returned value was really requested, before the answer, by a write that did not fail.
  A page or a commit has each path once, and in order.
- *I3 commit = listing*: each key of a commit obeys I1 and I2 for the commit's own interval; "nothing to
  commit: everything is in commit X" is a claim about X and is checked like X.
- *I4 nothing acknowledged is lost*: the quiet end is one state: every read, the commit made there and the
  head agree on it, and it obeys I1. Acknowledged commits are in their branch's history, once, in the
  order in which they were made; failed ones are not; a call that made a commit does not answer "nothing
  to commit".
- *I5 reset*: a reset, and a hard move by force, discard the writes that were acknowledged before they began. A
  hard move replaces only the head that it names.
- *I6 conditional*: a conditional write or delete takes effect only directly on top of the value that it expects. So
  at most one write wins for each state of a key. The value that a refused write saw obeys I1 and I2 like
  any read.
- *I7*: crashes, token drops and restarts are not operations, so any change that they make violates
  another invariant.
- *I8 merge*: the commit of a merge, revert or cherry-pick holds the three-way result
  (`tests.support.check.versions`). It is a write of the keys that it changes.
- *I9 no dangling address*.
- *I11 refusal*: what a refusal says was true at some moment of its operation (`tests.support.check.refusals`).

Creating or removing a branch is a write of every key; so "a re-created branch shows no old write" is I1.
A write with outcome `fail` is not a write: if its value is read, that violates I2. Some events are
allowed, and only counted: reads of unsettled writes, writes that take effect again after a seal, and
reads that return an older one of several concurrent writes.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.support.check.effects import Effect, Reading, Seals
from tests.support.check.history import (
    ABSENT,
    GONE,
    MERGES,
    NEVER,
    History,
    Op,
    OpKind,
    Outcome,
    shown,
)
from tests.support.check.pages import unchanged_value, wrong_lines
from tests.support.check.past import Past
from tests.support.check.refusals import wrong_refusals
from tests.support.check.versions import Versions
from tests.support.check.witness import explain
from tests.support.check.writes import Write, Writes, writes_of

__all__ = ["Report", "Violation", "check"]

_STORY_MAX = 60
_CUT_SHARE_MAX = 0.02

_Problem = tuple[str, Op, str]
"""The violated invariant, the operation that shows the violation, and a description."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated promise.

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
    """The result of a check.

    Attributes:
        violations: empty if all promises were kept.
        statistics: number of operations, and of unusual but allowed events, by description.
    """

    violations: list[Violation] = field(default_factory=list)
    statistics: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Read:
    """A value that an operation returned.

    Attributes:
        is_beneath: whether the value may lie beneath a staged row, so that no reader saw it at that moment.
    """

    value: int
    inv: float
    ret: float
    op: Op
    invariant: str
    is_beneath: bool = False


@dataclass(frozen=True, slots=True)
class _Branch:
    """Data of a branch that does not depend on the key.

    Attributes:
        commits: commits with known contents, and the times when they ended (`_commits_of`).
    """

    history: History
    name: str
    commits: Sequence[tuple[Op, str, float]]
    seals: Seals
    versions: Versions
    past: Past


def check(history: History) -> Report:
    """Checks a history against the invariants."""
    report = Report()
    for op in history.ops:
        report.statistics[f"{op.kind} {op.outcome}"] += 1
        if op.expected is not None:
            report.statistics[f"{op.kind} {op.outcome} of these conditional"] += 1
    keys = {op.key for op in history.ops if op.key is not None}
    keys |= {key for commit in history.commits.values() for key in commit.contents}
    versions = Versions(history)
    past = Past(history, versions)
    for name in sorted({op.branch for op in history.ops}):
        ops = [op for op in history.ops if op.branch == name]
        commits = [*_commits_of(history, name, ops, report)]
        branch = _Branch(history, name, commits, Seals(ops), versions, past)
        by_key = _by_key(ops)
        for key in sorted(keys):
            _check_key(branch, key, by_key(key), report)
        if not _check_chain(history, name, ops, report):
            _check_head(branch, ops, report)
    for op, text in versions.merge_problems():
        told = f"{op.branch}: #{op.number} {op.kind} {text}"
        report.violations.append(Violation("I8", told, (op.line(),)))
    for op, text in wrong_lines(past):
        told = f"{op.branch}/{op.key}: #{op.number} {op.kind} {text}"
        report.violations.append(Violation("I1", told, (op.line(),)))
    for op, text in wrong_refusals(past):
        told = f"{op.branch}: #{op.number} {op.kind} {text}"
        report.violations.append(Violation("I11", told, (op.line(),)))
    report.violations += [Violation("I9", text) for text in history.dangling]
    report.violations += [Violation("I2", text) for text in history.doubled]
    _check_searches(report)
    return report


def _check_searches(report: Report) -> None:
    """Reports a violation if many searches were cut short: such a search proves nothing."""
    cut = report.statistics["searches for a witness that were cut short"]
    made = report.statistics["searches for a witness"]
    if cut > max(1, made * _CUT_SHARE_MAX):
        text = f"{cut} of {made} searches for a witness were cut short: play less at a time"
        report.violations.append(Violation("I0", text))


def _by_key(ops: Sequence[Op]) -> Callable[[str], Sequence[Op]]:
    """Returns the operations on one key and on all keys, in order, so that no key scans the others."""
    own: defaultdict[str | None, list[Op]] = defaultdict(list)
    for op in ops:
        own[op.key].append(op)
    return lambda key: sorted([*own[None], *own[key]], key=lambda op: op.number)


def _commits_of(
    history: History, branch: str, ops: Sequence[Op], report: Report
) -> Iterator[tuple[Op, str, float]]:
    """Yields the commits of a branch whose contents I3 applies to, with the times when they ended.

    These are the acknowledged ones, and those without an answer that are in the branch's history (they
    may have ended at any time).
    """
    by_message = {history.commits[c].message: c for c in history.chain(branch)}
    for op in ops:
        if op.kind is not OpKind.COMMIT:
            continue
        if op.commit_id:
            commit = history.commits.get(op.commit_id)
            if op.is_claim and commit is not None and commit.message == f"#{op.number}":
                text = f"commit #{op.number} says that there was nothing to commit, and made one"
                report.violations.append(Violation("I4", text, (op.line(),)))
            if commit is not None:
                yield op, op.commit_id, op.end
            elif not any(o.kind is OpKind.REMOVE and o.ret > op.inv for o in ops):
                text = f"commit {op.commit_id} was acknowledged and cannot be read"
                report.violations.append(Violation("I4", text, (op.line(),)))
        elif op.outcome is Outcome.INFO and f"#{op.number}" in by_message:
            report.statistics["lost answers of commits that were made"] += 1
            yield op, by_message[f"#{op.number}"], NEVER


def _reads_of(branch: _Branch, key: str, ops: Sequence[Op]) -> Iterator[_Read]:
    for op in ops:
        if op.kind in {OpKind.GET, OpKind.LIST} and op.is_ok and op.key in {key, None}:
            value = unchanged_value(branch.past, op) if op.is_unchanged else op.value
            if value is None:
                assert op.is_unchanged, "any other read has a value"
                continue
            yield _Read(value, op.inv, op.end, op, "I1")
        elif op.key == key and op.expected is not None:
            if op.is_ok:
                yield _Read(op.expected, op.inv, op.end, op, "I6")
            elif op.observed is not None:
                yield _Read(op.observed, op.inv, op.end, op, "I1")
    for op, commit_id, end in branch.commits:
        value = branch.history.commits[commit_id].contents.get(key, ABSENT)
        # A merge that was under way may have published it beneath rows that came since the merge began.
        is_beneath = op.is_claim and branch.versions.is_moving_to(commit_id, op)
        yield _Read(value, op.inv, end, op, "I3", is_beneath)


def _check_key(branch: _Branch, key: str, ops: Sequence[Op], report: Report) -> None:
    listed = [*writes_of(branch.history, branch.versions, key, ops)]
    writes = Writes(listed)
    reads = sorted(_reads_of(branch, key, ops), key=lambda read: read.inv)
    problem = _first_problem(writes, reads)
    if problem is None:
        # All reads at the quiet end see one state, so one of them is enough for the search.
        quiet = [read for read in reads if read.inv > branch.history.quiet_at]
        steps = [op for op in ops if op.is_stepwise]
        earlier = [
            read
            for read in reads
            if read.invariant != "I6"
            and not read.is_beneath
            and read.inv <= _from(quiet)
            and not _is_between(read, steps)
        ]
        problem = _unexplained(listed, earlier, branch.seals, report) or _apart(branch, key, quiet)
    if problem is not None:
        invariant, op, text = problem
        text = f"{branch.name}/{key}: #{op.number} {op.kind} {text}"
        report.violations.append(Violation(invariant, text, _story(key, ops, op)))
    _count_oddities(writes, reads, report)


def _from(quiet: Sequence[_Read]) -> float:
    """Returns when the first read at the quiet end began."""
    return min((read.inv for read in quiet), default=NEVER)


def _is_between(read: _Read, steps: Sequence[Op]) -> bool:
    """Whether a read found no branch while it was created or removed in several steps, seen by some replicas
    first.
    """
    return read.value == GONE and any(op.inv < read.ret and op.ret > read.inv for op in steps)


def _first_problem(writes: Writes, reads: Sequence[_Read]) -> _Problem | None:
    """Finds a violation by one read and one write; the first one of a key explains the others."""
    for read in reads:
        problem = _problem(writes, read)
        if problem is not None:
            invariant, text = problem
            return invariant, read.op, f"has {shown(read.value)}{text}"
    return None


def _unexplained(
    writes: Sequence[Write], reads: Sequence[_Read], seals: Seals, report: Report
) -> _Problem | None:
    """Finds a violation that only all reads and writes together show."""
    effects = [Effect(write.value, write.op, write.replaces) for write in writes]
    readings = [Reading(read.value, read.inv, read.ret, read.op) for read in reads]
    verdict = explain(effects, readings, seals)
    report.statistics["effects of a write beyond its first"] += verdict.again
    report.statistics["searches for a witness"] += 1
    report.statistics["searches for a witness that were cut short"] += verdict.is_cut
    op = verdict.failed
    if op is None:
        return None
    invariant = "I1"
    if op.kind is OpKind.COMMIT:
        invariant = "I3"
    elif op.expected is not None and op.is_ok:
        invariant = "I6"
    elif op.kind in MERGES:
        invariant = "I8"
    elif op.kind in {OpKind.RESET, OpKind.MOVE}:
        invariant = "I5"
    value = next((read.value for read in reads if read.op is op), op.value)
    end = f" with the answers before it; kept {verdict.states_max} states" * verdict.is_cut
    text = (
        f"has {shown(value)}, and no order of effects explains it with the answers before it, "
        f"unless some write takes effect more often than it may or an acknowledged one vanishes{end}"
    )
    return invariant, op, text


def _apart(branch: _Branch, key: str, quiet: Sequence[_Read]) -> _Problem | None:
    """I4: checks that at the quiet end all kinds of reads return the same value, and that the head has it."""
    for first, second in itertools.pairwise(quiet):
        if first.value != second.value:
            text = (
                f"has {shown(second.value)}, and #{first.op.number} {first.op.kind} had "
                f"{shown(first.value)}, at the quiet end"
            )
            return "I4", second.op, text
    head = branch.history.commits.get(branch.history.heads.get(branch.name, ""))
    commits = [read for read in quiet if read.op.kind is OpKind.COMMIT]
    if head is not None and commits:
        value = head.contents.get(key, ABSENT)
        if value != commits[-1].value:
            text = f"has {shown(commits[-1].value)}, and the head has {shown(value)}"
            return "I4", commits[-1].op, text
    return None


def _problem(writes: Writes, read: _Read) -> tuple[str, str] | None:
    found = writes.candidate(read.value, read.ret)
    if found is None:
        if read.value in writes:
            return "I2", ", which was written only later"
        return "I2", ", which was never written, or whose write failed"
    newest = writes.newest_before(read.inv)
    if newest is not None and found.ret < newest.inv:
        return (
            read.invariant,
            f" of #{found.op.number}, but #{newest.op.number} ({shown(newest.value)}) was "
            f"acknowledged at {newest.ret:.0f}, before the read began at {read.inv:.0f}",
        )
    return None


def _story(key: str, ops: Sequence[Op], about: Op) -> tuple[str, ...]:
    told = [op for op in ops if op.key in {key, None} and op.inv <= about.end]
    lines = [("→ " if op is about else "  ") + op.line() for op in told]
    if len(lines) > _STORY_MAX:
        lines = [f"({len(lines) - _STORY_MAX} operations before)", *lines[-_STORY_MAX:]]
    return tuple(lines)


def _count_oddities(writes: Writes, reads: Sequence[_Read], report: Report) -> None:
    for read in reads:
        found = writes.candidate(read.value, read.ret)
        if found is not None and found.ret == NEVER:
            report.statistics["reads of unsettled writes"] += 1
    gets = sorted((r for r in reads if r.invariant == "I1"), key=lambda read: read.ret)
    for first, second, third in zip(gets, gets[1:], gets[2:], strict=False):
        if first.value == third.value != second.value:
            report.statistics["reads that went back (B-A-N-A-N-A)"] += 1


def _check_head(branch: _Branch, ops: Sequence[Op], report: Report) -> None:
    """I4, I5 and I8: one order of commits, merges and moves explains each head that clients were told."""
    problem = branch.versions.head_problem(branch.name)
    if problem is not None:
        told = [op for op in ops if op.key is None and op.inv <= problem.op.end]
        story = tuple(("→ " if op is problem.op else "  ") + op.line() for op in told)
        violation = Violation(problem.invariant, problem.text, story[-_STORY_MAX:])
        report.violations.append(violation)


def _check_chain(history: History, branch: str, ops: Sequence[Op], report: Report) -> bool:
    """I4 for commits: acknowledged commits are in the history of their branch, in order, once.

    Returns:
        Whether one is not.
    """
    found = [*_chain_problems(history, branch, ops)]
    report.violations += found
    return bool(found)


def _chain_problems(history: History, branch: str, ops: Sequence[Op]) -> Iterator[Violation]:
    chain = history.chain(branch)
    if not chain:
        return
    place = {commit_id: number for number, commit_id in enumerate(chain)}
    # If the branch was removed or created since, it began another history.
    turns = [op for op in ops if op.kind in {OpKind.REMOVE, OpKind.CREATE}]
    began = max((op.ret for op in turns if op.ret != NEVER), default=-1.0)
    # It takes two unsettled turns to begin another history unseen.
    messages = Counter(history.commits[c].message for c in chain)
    made = [op for op in ops if op.kind in {OpKind.COMMIT, *MERGES}]
    unsettled = {op.kind for op in turns if op.outcome is Outcome.INFO}
    for op in made:
        if messages[f"#{op.number}"] > 1:
            text = f"{branch}: {op.kind} #{op.number} is in the history more than once"
            yield Violation("I4", text, (op.line(),))
        if op.outcome is Outcome.FAIL and messages[f"#{op.number}"]:
            text = f"{branch}: {op.kind} #{op.number} failed but is in the history"
            yield Violation("I4", text, (op.line(),))
    if any(op.kind is OpKind.MOVE and op.outcome is not Outcome.FAIL for op in ops):
        return  # commits leave the history; `_check_head` finds an order
    acked = [op for op in made if op.is_ok and op.commit_id and op.inv > began]
    for op in acked:
        if op.commit_id not in place and unsettled != {OpKind.REMOVE, OpKind.CREATE}:
            text = f"{branch}: acknowledged commit {op.commit_id[:12]} is not in the history"
            story = tuple(other.line() for other in made)
            yield Violation("I4", text, story)
    newest: Op | None = None  # of the commits that had ended, the one nearest to the head
    by_end = sorted((op for op in acked if op.commit_id in place), key=lambda op: op.end)
    for op in sorted(by_end, key=lambda op: op.inv):
        while by_end and by_end[0].end < op.inv:
            over = by_end.pop(0)
            if newest is None or place[over.commit_id] < place[newest.commit_id]:
                newest = over
        if newest is not None and place[op.commit_id] > place[newest.commit_id]:
            text = f"{branch}: commit #{op.number} is older than #{newest.number}, which had ended before"
            yield Violation("I4", text, (newest.line(), op.line()))
