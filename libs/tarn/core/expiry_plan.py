"""The plan of an expiry: which commits and tags the retention rules of a repository let go (docs/operate/retention.md).

The *line* of a branch is its head and the chain of first parents below it: the heads that the branch has had. The
commits that a merge brought are on the line of another branch, or on none: *detached*.

Times are made monotone first: a commit counts as at least as young as its parents. So a clock that went backward makes
commits stay longer, never shorter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tarn.core.clock import DAY_US
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId
from tarn.core.retention import BranchRule, Retention

__all__ = ["History", "HistoryCommit", "HistoryTag", "plan_expiry", "plan_tags"]


@dataclass(frozen=True, slots=True)
class HistoryCommit:
    """The facts about a commit that a plan needs.

    Attributes:
        parents: its parents.
        create_time_us: microseconds since the epoch.
        generation: greater than that of each parent.
        metarange_id: its listing.
        is_expired: whether it expired earlier.
    """

    parents: tuple[CommitId, ...]
    create_time_us: int
    generation: int
    metarange_id: str = ""
    is_expired: bool = False


@dataclass(frozen=True, slots=True)
class HistoryTag:
    """One life of a tag.

    Attributes:
        commit_id: its commit.
        create_time_us: microseconds since the epoch.
        nonce: of this life; a tag that is created again has another one.
    """

    commit_id: CommitId
    create_time_us: int
    nonce: bytes


@dataclass(slots=True)
class History:
    """The commits and refs of a repository.

    Attributes:
        commits: all commits.
        heads: the head of each branch.
        tags: the tags.
        protected: commits that keep their objects whatever rules say: those of tags, and targets of reflogs.
        published: commits that were the head of a branch, as far as notes in the bucket tell.
    """

    commits: dict[CommitId, HistoryCommit] = field(default_factory=dict)
    heads: dict[str, CommitId] = field(default_factory=dict)
    tags: dict[str, HistoryTag] = field(default_factory=dict)
    protected: set[CommitId] = field(default_factory=set)
    published: set[CommitId] = field(default_factory=set)


def plan_expiry(history: History, retention: Retention, now_us: int) -> dict[CommitId, str]:
    """Returns the commits that expire now, each with the rule that lets it go. Those that expired earlier are left out.

    Time: in proportion to the commits, plus those that count-based rules keep for each branch.

    Args:
        history: all of it.
        retention: the rules.
        now_us: microseconds since the epoch.

    Raises:
        TarnError: CORRUPT: a commit of the line of a branch has no row.
    """
    if not retention.expires_commits:
        return {}
    times = _monotone(history.commits)
    lines = _Lines(history.commits, times, now_us)
    for branch_id, head in sorted(history.heads.items()):
        lines.add(head, retention.rules_of(branch_id))
    kept = lines.kept | history.protected
    expired = {}
    for commit_id, commit in history.commits.items():
        if commit.is_expired or commit_id in kept:
            continue
        if commit_id in lines.rules:
            expired[commit_id] = str(lines.rules[commit_id])
    if retention.detached_days is None:
        return expired
    oldest_us = now_us - retention.detached_days * DAY_US
    for commit_id in _published(history):
        is_detached = commit_id not in lines.rules and commit_id not in kept
        if (
            is_detached
            and times[commit_id] < oldest_us
            and not history.commits[commit_id].is_expired
        ):
            expired[commit_id] = f"detached: keep_days {retention.detached_days}"
    return expired


def plan_tags(history: History, retention: Retention, now_us: int) -> dict[str, str]:
    """Returns the tags whose time is over, each with the rule that decided.

    Their commits are kept in the same plan, because the tags are still there. They may expire in the next one.
    """
    found = {}
    for tag_id, rule in zip(history.tags, retention.rules_of_tags(list(history.tags)), strict=True):
        if rule and history.tags[tag_id].create_time_us < now_us - rule.keep_days * DAY_US:
            found[tag_id] = str(rule)
    return found


class _Lines:
    """The lines of the branches: the commits that they keep, and the commits that rules cover.

    Attributes:
        kept: commits that a branch keeps.
        rules: commits of the lines of branches with rules, each with a rule of such a branch.
    """

    def __init__(
        self, commits: Mapping[CommitId, HistoryCommit], times: Mapping[CommitId, int], now_us: int
    ) -> None:
        self._commits = commits
        self._times = times
        self._now_us = now_us
        self._whole: set[CommitId] = set()
        self._walked: dict[int, set[CommitId]] = {}
        self.kept: set[CommitId] = set()
        self.rules: dict[CommitId, BranchRule] = {}

    def add(self, head: CommitId, rules: tuple[BranchRule, ...]) -> None:
        """Adds the line of a branch with some rules; without rules it keeps all."""
        self.kept.add(head)
        if not rules:
            for commit_id in _line(self._commits, head):
                if commit_id in self._whole:
                    return
                self._whole.add(commit_id)
                self.kept.add(commit_id)
            return
        for commit_id in _line(self._commits, head):
            if commit_id in self.rules:
                break
            self.rules[commit_id] = rules[0]
        for rule in rules:
            self._keep(head, rule)

    def _keep(self, head: CommitId, rule: BranchRule) -> None:
        """Adds the commits of a line that a rule keeps."""
        # Commits that another walk kept for this number of days: from there on, age keeps nothing new.
        walked = self._walked.setdefault(rule.keep_days or 0, set())
        is_young = rule.keep_days is not None
        oldest_us = self._now_us - (rule.keep_days or 0) * DAY_US
        replaced_us = self._now_us  # when the commit was the head for the last time
        for number, commit_id in enumerate(_line(self._commits, head)):
            is_young = is_young and replaced_us >= oldest_us and commit_id not in walked
            if not is_young and number >= rule.keep_commits:
                return
            if is_young:
                walked.add(commit_id)
            self.kept.add(commit_id)
            replaced_us = self._times[commit_id]


def _published(history: History) -> Iterator[CommitId]:
    """Yields the commits that surely were the head of a branch, and their ancestors.

    The others may belong to an operation that has made its commit and not moved its branch yet. It may do that after
    any time, so they are kept.
    """
    published = history.published | history.protected | set(history.heads.values())
    commits = history.commits
    for commit_id in sorted(commits, key=lambda each: -commits[each].generation):
        if commit_id in published:
            published.update(commits[commit_id].parents)
            yield commit_id


def _line(commits: Mapping[CommitId, HistoryCommit], head: CommitId) -> Iterator[CommitId]:
    at: CommitId | None = head
    while at is not None:
        commit = commits.get(at)
        if commit is None:
            text = f"commit {at} has no row, so nothing may expire; run tarn fsck"
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, commit_id=at)
        yield at
        at = commit.parents[0] if commit.parents else None


def _monotone(commits: Mapping[CommitId, HistoryCommit]) -> dict[CommitId, int]:
    times: dict[CommitId, int] = {}
    order: Iterable[CommitId] = sorted(commits, key=lambda each: commits[each].generation)
    for commit_id in order:
        commit = commits[commit_id]
        inherited = (times.get(parent, 0) for parent in commit.parents)
        times[commit_id] = max(commit.create_time_us, *inherited, 0)
    return times
