"""Random histories of a lake: commits on several branches, deletions, merges in all directions."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from lake import Lake
from tests.support.choices import DEST_WINS, SOURCE_WINS

from tarn.core.commit import Commit
from tarn.core.entry import unpack
from tarn.core.errors import TarnError
from tarn.core.ids import BranchId, CommitId
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.versioning.merges import MergeRequest

__all__ = ["PATHS", "Story", "random_story"]

PATHS = ("a", "d/", "d/a", "d/b", "d/e/x", "d/e/y", "dz", "z/é")
_BRANCHES = tuple(BranchId(name) for name in ("main", "left", "right"))


@dataclass(frozen=True)
class Story:
    """The result of a random history.

    Attributes:
        commits: every commit.
        contents: the sizes of the objects of each, by path.
        heads: the heads of the branches.
    """

    commits: Mapping[CommitId, Commit]
    contents: Mapping[CommitId, Mapping[str, int]]
    heads: tuple[CommitId, ...]

    def ancestors(self, commit_id: CommitId, *, first_parent: bool = False) -> set[CommitId]:
        found, left = {commit_id}, [commit_id]
        while left:
            parents = self.commits[left.pop()].parents
            new = set(parents[:1] if first_parent else parents) - found
            found |= new
            left += new
        return found

    def changed(self, commit_id: CommitId, *, first_parent: bool = False) -> set[str]:
        """The paths that a commit changes, by definition."""
        parents = self.commits[commit_id].parents
        olds = [self.contents[each] for each in (parents[:1] if first_parent else parents)] or [{}]
        new = self.contents[commit_id]
        return {path for path in PATHS if all(old.get(path) != new.get(path) for old in olds)}

    def log(self, start: CommitId, *, first_parent: bool = False) -> list[CommitId]:
        def rank(commit_id: CommitId) -> tuple[int, int, str]:
            commit = self.commits[commit_id]
            return -commit.generation, -commit.create_time_us, commit_id

        return sorted(self.ancestors(start, first_parent=first_parent), key=rank)


async def random_story(lake: Lake, seed: int, steps: int = 30) -> Story:
    rng = random.Random(seed)
    made: list[CommitId] = [(await lake.graveler.branches.fresh(lake.main)).branch.commit_id]
    for name in _BRANCHES[1:]:
        await lake.graveler.branches.create(lake.branch(name), made[0])
    for step in range(steps):
        lake.clock.advance(rng.choice((0.0, 1.0)))
        made.append(await _step(lake, rng, step))
    commits: dict[CommitId, Commit] = {}
    contents: dict[CommitId, dict[str, int]] = {}
    left = list(made)
    while left:
        commit_id = left.pop()
        if commit_id in commits:
            continue
        commit = await lake.graveler.commits.get(lake.repository, commit_id)
        namespace = lake.repository.storage_namespace
        paths, entries = await lake.graveler.committed.page(namespace, commit.metarange_id, "", 100)
        commits[commit_id] = commit
        contents[commit_id] = {
            path: unpack(packed).size for path, packed in zip(paths, entries, strict=True)
        }
        left += commit.parents
    heads = [(await lake.graveler.branches.fresh(lake.branch(each))).branch for each in _BRANCHES]
    return Story(commits, contents, tuple(each.commit_id for each in heads))


async def _step(lake: Lake, rng: random.Random, step: int) -> CommitId:
    """Commits or merges; returns the new head."""
    branch = rng.choice(_BRANCHES)
    head = (await lake.graveler.branches.fresh(lake.branch(branch))).branch.commit_id
    try:
        if rng.random() < 0.4:
            source = (await lake.graveler.branches.fresh(lake.branch(rng.choice(_BRANCHES)))).branch
            request = MergeRequest(
                source.commit_id,
                "ann",
                f"merge {step}",
                choice=rng.choice((SOURCE_WINS, DEST_WINS)),
                squash=rng.random() < 0.2,
            )
            return (await lake.graveler.merges.merge(lake.branch(branch), request)).commit_id
        for path in rng.sample(PATHS, rng.choice((1, 1, 2, 5))):
            if rng.random() < 0.3:
                await lake.delete(path, branch=branch)
            else:
                await lake.put(path, rng.choice((1, 2, 3, step + 10)), branch)
        wish = CommitRequest(rng.choice(("ann", "bob")), f"step {step}", allow_empty=True)
        return (await lake.graveler.committing.commit(lake.branch(branch), wish)).commit_id
    except TarnError as error:
        if error.reason != "NOTHING_TO_MERGE":
            raise
        return head
