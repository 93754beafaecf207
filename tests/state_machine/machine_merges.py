"""Rules that make commits from commits: merge, revert, cherry-pick, and the preview of a merge."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from lake_model import UNDECIDED, RefusedError, Side
from machine_base import (
    BRANCHES,
    choice_of,
    contents,
    mostly,
    numbers,
    rarely,
    sides,
)
from machine_writes import Writes


class Merges(Writes):
    """Merges, reverts and picks."""

    @rule(
        at=numbers,
        source=numbers,
        side=sides,
        below=st.sampled_from(["", "a/**", "b/**"]),
        kind=st.sampled_from(["", "", "squash", "fast-forward", "allow-empty"]),
        by=numbers,
        is_clean=mostly,
    )
    def merge(
        self,
        at: int,
        source: int,
        side: Side | None,
        below: str,
        kind: str,
        by: int,
        is_clean: bool = False,
    ) -> None:
        branch = self.branch(at)
        if is_clean:
            self.commit_first(branch, by)
        else:
            self.put(at, "d", 1 + by % 4, 1, by)
        text, commit = self.ref(source)
        self.merge_commit(branch, text, commit, side, below, kind, by)

    def merge_commit(
        self,
        branch: str,
        text: str,
        commit: int,
        side: Side | None,
        below: str,
        kind: str,
        by: int,
    ) -> None:
        """Merges the commit of a ref into a branch."""
        options: dict[str, Any] = {
            "squash": kind == "squash",
            "allow_empty": kind == "allow-empty",
            "fast_forward_only": kind == "fast-forward",
        }
        choice, choices, default = choice_of(side, below)
        work = self.client(by).merge(
            self.call,
            self.repository,
            branch,
            text,
            choices=choices,
            default_side=default,
            **options,
        )
        if kind != "fast-forward":
            self.new_commit(
                "merge", lambda: self.model.merge(branch, commit, choice, **options), work
            )
            return
        try:
            number, made = self.both(
                "merge", lambda: self.model.merge(branch, commit, choice, **options), work
            )
        except RefusedError:
            return
        self.know(number, made.commit_id)

    @rule(
        name=st.sampled_from(BRANCHES),
        at=numbers,
        ours=contents,
        theirs=contents,
        side=sides,
        kind=st.sampled_from(["", "", "squash", "fast-forward"]),
        by=numbers,
    )
    def diverge(
        self,
        name: str,
        at: int,
        ours: dict[str, int],
        theirs: dict[str, int],
        side: Side | None,
        kind: str,
        by: int,
    ) -> None:
        """Changes a branch and a branch that left it, and merges the second into the first."""
        dest = self.branch(at)
        if name == dest or name in self.model.tags:
            return
        self.delete_branch(name, by)
        self.create_branch(name, self.number_of(dest), by)
        if name not in self.model.branches:  # a rule of the repository forbids it
            return
        self.load(self.number_of(dest), ours, by)
        self.load(self.number_of(name), theirs, by + 1)
        self.merge(self.number_of(dest), self.number_of(name), side, "", kind, by)

    @initialize(
        first=contents,
        name=st.sampled_from(BRANCHES),
        ours=contents,
        theirs=contents,
        side=sides,
        by=numbers,
    )
    def begin(
        self,
        first: dict[str, int],
        name: str,
        ours: dict[str, int],
        theirs: dict[str, int],
        side: Side | None,
        by: int,
    ) -> None:
        """Makes a repository with some history."""
        self.create()
        self.load(0, first, by)
        self.diverge(name, 0, ours, theirs, side, "", by)

    @rule(
        name=st.sampled_from(BRANCHES),
        at=numbers,
        loads=st.tuples(contents, contents, contents, contents),
        first_sides=st.tuples(sides, sides),
        side=sides,
        by=numbers,
    )
    def criss_cross(
        self,
        name: str,
        at: int,
        loads: tuple[dict[str, int], ...],
        first_sides: tuple[Side | None, Side | None],
        side: Side | None,
        by: int,
    ) -> None:
        """Merges two branches into each other from the same two heads, changes both, and merges them again.

        Most often each keeps its own version of what both changed, so that it is undecided in the second merge.
        """
        dest = self.branch(at)
        if name == dest or name in self.model.tags:
            return
        self.delete_branch(name, by)
        self.create_branch(name, self.number_of(dest), by)
        if name not in self.model.branches:  # a rule of the repository forbids it
            return
        pair = (dest, name)
        for branch, changes in zip(pair, loads[:2], strict=True):
            self.load(self.number_of(branch), changes, by)
        heads = [self.model.branches[branch].head for branch in pair]
        for branch, other, chosen in zip(pair, heads[::-1], first_sides, strict=True):
            self.merge_commit(branch, self.ids[other], other, chosen or Side.DEST, "", "", by)
        parents = [self.model.commits[self.model.branches[branch].head].parents for branch in pair]
        self.outcomes["criss_cross"] += parents == [tuple(heads), tuple(heads[::-1])]
        for branch, changes in zip(pair, loads[2:], strict=True):
            self.load(self.number_of(branch), changes, by + 1)
        self.crossed = (self.model.branches[dest].head, self.model.branches[name].head)
        self.what_if(self.number_of(dest), self.number_of(name), side, by)
        self.merge_commit(name, dest, self.model.branches[dest].head, side, "", "", by)

    @rule(at=numbers, source=numbers, side=sides, by=numbers)
    def what_if(self, at: int, source: int, side: Side | None, by: int) -> None:
        """Previews a merge, makes it on a branch of its own, and then makes it: all three agree."""
        dest = self.branch(at)
        self.commit_first(dest, by)
        _, commit = self.ref(source)
        name, text = "what-if", self.ids[commit]
        if dest == name:
            return
        self.delete_branch(name, by)
        head = self.model.branches[dest].head
        self.preview_of(dest, head, text, commit, side, "", by)
        if name in self.model.branches:  # a rule forbids its deletion
            return
        before = len(self.model.commits)
        self.merge_to_branch(name, dest, head, text, commit, side, by)
        self.merge_commit(dest, text, commit, side, "", "", by + 1)
        made = self.ids[before:]
        if len(made) == 2:
            listings = [
                self.run(self.client(by).get_commit(self.call, self.repository, each)).metarange_id
                for each in made
            ]
            assert listings[0] == listings[1]
            self.outcomes["what_if"] += 1

    @rule(left=numbers, right=numbers, side=sides, below=st.sampled_from(["", "a/**"]), by=numbers)
    def preview(self, left: int, right: int, side: Side | None, below: str, by: int) -> None:
        self.preview_of(*self.ref(left), *self.ref(right), side, below, by)

    def preview_of(
        self,
        dest_text: str,
        dest: int,
        source_text: str,
        source: int,
        side: Side | None,
        below: str,
        by: int,
    ) -> None:
        """Compares the preview of a merge with the model."""
        choice, choices, default = choice_of(side, below)
        conflicts = self.model.conflicts(source, dest, choice)

        async def work() -> tuple[Any, dict[str, bool]]:
            client = self.client(by)
            found = await client.preview_merge(
                self.call,
                self.repository,
                dest_text,
                source_text,
                choices=choices,
                default_side=default,
                page_size=2,
            )
            every = client.all_conflicts(
                lambda: self.call,
                self.repository,
                found,
                choices=choices,
                default_side=default,
                page_size=1,
            )
            return found, {each.path: each.is_base_undecided async for each in every}

        found, listed = self.run(work())
        assert list(listed) == conflicts
        assert found.conflict_count == len(conflicts)
        base = self.model.base_contents(self.model.merge_bases([source], dest))
        assert listed == {path: base.get(path) == UNDECIDED for path in conflicts}
        self.outcomes["undecided"] += UNDECIDED in base.values()
        bases = [self.ids[each] for each in self.model.merge_bases([source], dest)]
        assert list(found.base_commit_ids) == bases
        assert found.base_commit_id == bases[0]
        if conflicts:
            return
        merged = self.model.merged(source, dest, choice)
        changes = self.model.differences(self.model.commits[dest].contents, merged)
        added = sum(old is None for old, _ in changes.values())
        removed = sum(new is None for _, new in changes.values())
        counts = found.counts
        assert (counts.added_count, counts.removed_count) == (added, removed)
        assert counts.changed_count >= len(changes) - added - removed

    @rule(
        at=numbers,
        what=numbers,
        parent=st.sampled_from([0, 0, 0, 1, 2]),
        side=sides,
        is_revert=st.booleans(),
        allow_empty=rarely,
        by=numbers,
        is_clean=mostly,
    )
    def apply(
        self,
        at: int,
        what: int,
        parent: int,
        side: Side | None,
        is_revert: bool,
        allow_empty: bool,
        by: int,
        is_clean: bool,
    ) -> None:
        """Reverts or picks a commit."""
        branch = self.branch(at)
        if is_clean:
            self.commit_first(branch, by)
        text, commit = self.ref(what)
        choice, choices, default = choice_of(side, "")
        client = self.client(by)
        call = client.revert if is_revert else client.cherry_pick
        expected = self.model.revert if is_revert else self.model.cherry_pick
        work = call(
            self.call,
            self.repository,
            branch,
            text,
            parent_number=parent,
            choices=choices,
            default_side=default,
            allow_empty=allow_empty,
        )
        self.new_commit(
            "revert" if is_revert else "cherry_pick",
            lambda: expected(branch, commit, parent, choice, allow_empty=allow_empty),
            work,
        )

    @rule(
        at=numbers,
        since=numbers,
        last=numbers,
        parent=st.sampled_from([0, 1, 1, 1, 2]),
        side=sides,
        squash=rarely,
        by=numbers,
    )
    def revert_range(
        self,
        at: int,
        since: int,
        last: int,
        parent: int,
        side: Side | None,
        squash: bool,
        by: int,
    ) -> None:
        branch = self.branch(at)
        self.commit_first(branch, by)
        (since_text, first), (text, newest) = self.ref(since), self.ref(last)
        if since % 2:  # two arbitrary refs are seldom a range
            line = self.model.first_parents(newest)
            first = line[min(1 + since % 3, len(line) - 1)]
            since_text = self.ids[first]
        choice, choices, default = choice_of(side, "")

        async def work() -> list[str]:
            client = self.client(by)
            made = await client.revert_range(
                self.call,
                self.repository,
                branch,
                since_text,
                text,
                parent_number=parent,
                choices=choices,
                default_side=default,
                squash=squash,
            )
            ids, wanted = [made.commit.commit_id], 1 if squash else len(made.reverted_commit_ids)
            while len(ids) < wanted:
                commit = await client.get_commit(self.call, self.repository, f"{ids[-1]}^")
                ids.append(commit.commit_id)
            return ids[::-1]

        try:
            numbers_made, ids = self.both(
                "revert_range",
                lambda: self.model.revert_range(
                    branch, first, newest, parent, choice, squash=squash
                ),
                work(),
            )
        except RefusedError:
            return
        assert len(numbers_made) == len(ids)
        for number, commit_id in zip(numbers_made, ids, strict=True):
            self.know(number, commit_id)

    @rule(
        name=st.sampled_from(BRANCHES),
        dest=numbers,
        source=numbers,
        side=sides,
        allow_empty=rarely,
        by=numbers,
    )
    def merge_branch(
        self, name: str, dest: int, source: int, side: Side | None, allow_empty: bool, by: int
    ) -> None:
        """Creates a branch at a merge."""
        self.merge_to_branch(name, *self.ref(dest), *self.ref(source), side, by, allow_empty)

    def merge_to_branch(
        self,
        name: str,
        dest_text: str,
        into: int,
        source_text: str,
        merged: int,
        side: Side | None,
        by: int,
        allow_empty: bool = False,
    ) -> None:
        """Creates a branch at the merge of a ref into another one."""
        choice, choices, default = choice_of(side, "")
        work = self.client(by).create_merge_branch(
            self.call,
            self.repository,
            name,
            dest_text,
            source_text,
            choices=choices,
            default_side=default,
            allow_empty=allow_empty,
        )
        self.new_commit(
            "merge_branch",
            lambda: self.model.merge_branch(name, into, merged, choice, allow_empty=allow_empty),
            work,
        )
