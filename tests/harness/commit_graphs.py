"""Random histories: commits that branch and merge, without listings."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from tarn.core.commit import Commit
from tarn.core.ids import CommitId, MetarangeId

__all__ = ["Graph", "Node", "graphs"]

Node = tuple[int, Sequence[int], int]


class Graph:
    """Commits by id, and what was read of them.

    Args:
        nodes: for each commit its number as id, its parents' places, and its time.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.ids = [CommitId(f"{number:064x}") for number, _, _ in nodes]
        self.commits: dict[CommitId, Commit] = {}
        for commit_id, (number, places, time_us) in zip(self.ids, nodes, strict=True):
            parents = tuple(self.ids[place] for place in places)
            generation = 1 + max((self.commits[each].generation for each in parents), default=-1)
            self.commits[commit_id] = Commit(
                parents, MetarangeId(commit_id), f"user{number % 2}", "", time_us, generation
            )
        self.reads: list[CommitId] = []
        self.rounds = 0

    async def read(self, commit_ids: Sequence[CommitId]) -> list[Commit]:
        self.reads += commit_ids
        self.rounds += 1
        return [self.commits[commit_id] for commit_id in commit_ids]

    def ancestors(self, commit_id: CommitId) -> set[CommitId]:
        """By definition; with itself."""
        found, left = {commit_id}, [commit_id]
        while left:
            parents = set(self.commits[left.pop()].parents) - found
            found |= parents
            left += parents
        return found

    def best_common_ancestors(
        self, lefts: Sequence[CommitId], rights: Sequence[CommitId]
    ) -> set[CommitId]:
        reached = [set().union(*map(self.ancestors, group)) for group in (lefts, rights)]
        common = reached[0] & reached[1]
        return {
            each
            for each in common
            if not any(each in self.ancestors(other) for other in common - {each})
        }

    def rank(self, commit_id: CommitId) -> tuple[int, int, str]:
        commit = self.commits[commit_id]
        return (-commit.generation, -commit.create_time_us, commit_id)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Histories that branch and merge in layers, so that every tenth pair has several best common ancestors."""
    widths = draw(st.lists(st.integers(2, 3), min_size=1, max_size=5))
    numbers = draw(st.permutations(range(sum(widths))))
    nodes: list[Node] = []
    for width in widths:
        recent = draw(st.permutations(range(max(0, len(nodes) - 4), len(nodes))))
        for _ in range(width):
            count = draw(st.sampled_from([2, 2, 1, 3, 0]))
            start = draw(st.integers(0, 2))
            parents = recent[start : start + count] if nodes else []
            nodes.append((numbers[len(nodes)], parents, draw(st.integers(0, 2))))
    return Graph(nodes)
