"""Annotate: finds for each path of a listing the commit that gave it its present content.

The search goes backwards from a commit, in the order of a walk. Each commit that is reached holds a set of paths whose
content it has. A path whose content a parent has as well goes on to that parent, the first such one. A path whose
content no parent has is answered: this commit made it. So a version that a merge dropped is never named, unlike in a
log.

Cost: one row for each commit that is passed (`path_records`). Listings are compared only where a row says "maybe", at
the paths in question, and at merges; ranges that both listings share are not opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tarn.block.committed import Committed
from tarn.core.commit import Commit
from tarn.core.ids import CommitId, MetarangeId
from tarn.core.listing.changed_paths import ChangedPaths, Form, fingerprints_of
from tarn.core.listing.spans import path_after
from tarn.kv.records import Repository
from tarn_graveler.graph.path_changes import PathChanges
from tarn_graveler.graph.walk import Span, Walk
from tarn_graveler.records.commits import Commits

__all__ = ["Annotating", "AnnotatedPage", "Annotation"]

_STEPS_MAX = 20_000
"""Commits that one page passes."""
_WORK_MAX = 2_000
"""Comparisons of listings that one page makes: 1 for a pair of listings (1 ms), and 4 for each range that is opened."""
_RANGE_WORK = 4
_BATCH = 256
"""Commits whose rows are read together."""
_DECIDED_AT_ONCE = 16
"""Commits that are judged by their rows before other tasks get their turn: about 3 ms with a thousand paths."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """Where the content of a path comes from.

    Attributes:
        path: the path.
        commit_id: the commit that gave it its content; if not `is_final`, the oldest one found so far that has it.
        is_final: whether the search ended; False if the page had done its work before.
    """

    path: str
    commit_id: CommitId
    is_final: bool


@dataclass(frozen=True, slots=True)
class AnnotatedPage:
    """A page of annotations, in byte order of the paths.

    Attributes:
        lines: one for each path of the listing.
        commits: the commits that they name.
        next_after: the path after which the next page begins; None at the end.
    """

    lines: list[Annotation]
    commits: dict[CommitId, Commit]
    next_after: str | None


class Annotating:
    """Annotates listings of commits."""

    def __init__(self, commits: Commits, committed: Committed, changes: PathChanges) -> None:
        self._commits = commits
        self._committed = committed
        self._changes = changes

    async def page(
        self, repository: Repository, start: CommitId, *, prefix: str, after: str, limit: int
    ) -> AnnotatedPage:
        """Annotates up to `limit` paths of a commit that begin with `prefix` and are greater than `after`.

        Raises:
            TarnError: as `Committed.page` and `Walk`.
        """
        commit = await self._commits.get(repository, start)
        paths, _ = await self._committed.page(
            repository.storage_namespace,
            commit.metarange_id,
            path_after(after) if after else "",
            limit,
            prefix,
        )
        search = _Search(repository, self._commits, self._committed, self._changes)
        search.hold(start, paths)
        await search.run(start)
        lines = [Annotation(path, *search.found[path]) for path in paths]
        ids = list(dict.fromkeys(each.commit_id for each in lines))
        found = await self._commits.get_many(repository, ids)
        more = len(paths) == limit
        return AnnotatedPage(lines, dict(zip(ids, found, strict=True)), paths[-1] if more else None)


class _Search:
    """The search for one page.

    Attributes:
        found: for each path the commit, and whether it is final.
    """

    def __init__(
        self, repository: Repository, commits: Commits, committed: Committed, changes: PathChanges
    ) -> None:
        self._repository = repository
        self._commits = commits
        self._committed = committed
        self._changes = changes
        # Invariant: a path is held by one commit, or in `found`. The paths of each commit are sorted.
        self._held: dict[CommitId, list[str]] = {}
        self._work = 0
        self.found: dict[str, tuple[CommitId, bool]] = {}

    def hold(self, commit_id: CommitId, paths: Sequence[str]) -> None:
        """Lets a commit hold paths whose content it has."""
        if paths:
            self._held[commit_id] = sorted([*self._held.get(commit_id, ()), *paths])

    async def run(self, start: CommitId) -> None:
        """Passes commits until all paths are found or the work of a page is done."""
        walk = Walk(partial(self._commits.get_many, self._repository), Span.of(start))
        await walk.add(Span.of(start).starts)
        while self._held and walk.steps < _STEPS_MAX and self._work < _WORK_MAX:
            assert not walk.is_over, "the ancestors of a commit end with commits that hold nothing"
            batch: list[tuple[CommitId, Commit]] = []
            while not walk.is_over and len(batch) < _BATCH:
                passed = await walk.step()
                if passed is not None:
                    batch.append(passed)
            rows = await self._changes.rows(self._repository, [each for each, _ in batch])
            for place, ((commit_id, commit), row) in enumerate(zip(batch, rows, strict=True)):
                if place % _DECIDED_AT_ONCE == 0:
                    await asyncio.sleep(0)
                if self._work >= _WORK_MAX:
                    break
                if paths := self._held.pop(commit_id, None):
                    await self._pass(commit_id, commit, row, paths)
        for commit_id, paths in self._held.items():
            self.found |= dict.fromkeys(paths, (commit_id, False))

    async def _pass(
        self, commit_id: CommitId, commit: Commit, row: ChangedPaths | None, paths: list[str]
    ) -> None:
        """Decides for each path that a commit holds whether a parent has its content."""
        left = paths
        if len(commit.parents) == 1:
            if row is None:
                row = await self._changes.row_of(self._repository, commit_id, commit)
                self._work += 2 * _RANGE_WORK
            left = _maybe_changed(row, paths)
            changed = set(left)
            same = [path for path in paths if path not in changed] if changed else paths
            self.hold(commit.parents[0], same)
        if row is None or row.form is not Form.PATHS or len(commit.parents) > 1:
            parents = await self._commits.get_many(self._repository, commit.parents)
            for parent_id, parent in zip(commit.parents, parents, strict=True):
                left = await self._pass_on(parent_id, parent.metarange_id, commit, left)
        self.found |= dict.fromkeys(left, (commit_id, True))

    async def _pass_on(
        self, parent_id: CommitId, parent: MetarangeId, commit: Commit, paths: list[str]
    ) -> list[str]:
        """Lets a parent hold those paths whose content it has; returns the others."""
        if not paths:
            return []
        same, ranges = await self._committed.same_at(
            self._repository.storage_namespace, parent, commit.metarange_id, paths
        )
        self._work += 1 + _RANGE_WORK * ranges
        self.hold(parent_id, [path for path, is_same in zip(paths, same, strict=True) if is_same])
        return [path for path, is_same in zip(paths, same, strict=True) if not is_same]


def _maybe_changed(row: ChangedPaths, paths: list[str]) -> list[str]:
    """Those of the paths that a commit changes, or may change."""
    if row.form is Form.PATHS:
        changed = set(row.paths)
        return [path for path in paths if path in changed]
    if row.form is Form.FINGERPRINTS:
        held = row.holds(fingerprints_of(paths))
    elif row.form is Form.FOLDERS:
        folders = [path[: path.rfind("/") + 1] for path in paths]
        held = row.holds(fingerprints_of(folders)) | np.array([not folder for folder in folders])
    else:
        return paths
    return [path for path, is_held in zip(paths, held, strict=True) if is_held]
