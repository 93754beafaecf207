"""Rules that read: listings, differences, history. They compare what they read with the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from lake_model import Object
from machine_base import (
    MachineBase,
    numbers,
    paths,
)

from tarn.client.diffs import summary_of
from tarn.core.entry import unpack
from tarn.core.errors import TarnError
from tarn_proto.graveler.v1 import merge_service_pb2 as pb


class Reads(MachineBase):
    """Listings, differences and history."""

    @rule(at=numbers, path=paths, by=numbers)
    def get(self, at: int, path: str, by: int) -> None:
        branch = self.branch(at)
        expected = self.model.contents(branch).get(path)
        try:
            found = self.run(self.client(by).lookup(self.call, self.repository, branch, path))
        except TarnError as error:
            if error.reason.value != "ENTRY_NOT_FOUND":
                raise
            size = None
        else:
            size = unpack(found.entry).size
        assert size == (expected and expected.version)

    @rule(
        at=numbers,
        size=st.integers(1, 5),
        below=st.sampled_from(["", "a", "a/", "b/d"]),
        by=numbers,
    )
    def read_commit(self, at: int, size: int, below: str, by: int) -> None:
        """Lists a commit: its bytes never change."""
        number = self.commit_number(at)
        found = self.run(self._listing(self.ids[number], below, size, by))
        contents = self.model.commits[number].contents
        assert {path: unpack(packed).size for path, packed in found.items()} == {
            path: each.version for path, each in sorted(contents.items()) if path.startswith(below)
        }
        for path, packed in found.items():
            assert int.from_bytes(unpack(packed).address, "big") == contents[path].address

    @rule(
        left=numbers,
        right=numbers,
        size=st.integers(1, 4),
        from_merge_base=st.booleans(),
        below=st.sampled_from(["", "", "a/", "b/"]),
        by=numbers,
    )
    def diff(
        self, left: int, right: int, size: int, from_merge_base: bool, below: str, by: int
    ) -> None:
        """Compares two refs: as a list, and counted by folder."""
        (one, first), (two, second) = self.ref(left), self.ref(right)
        if from_merge_base and self.crossed is not None and left % 2:
            first, second = self.crossed
            one, two = self.ids[first], self.ids[second]
        client, commits = self.client(by), self.model.commits
        if from_merge_base:
            changes = self.model.changes_since_base(first, second)
            self.outcomes["folded_diff"] += len(self.model.merge_bases([first], second)) > 1
        else:
            changes = self.model.differences(commits[first].contents, commits[second].contents)

        def page(token: str) -> Awaitable[Any]:
            return client.diff_refs(
                self.call,
                self.repository,
                one,
                two,
                prefix=below,
                from_merge_base=from_merge_base,
                page_size=size,
                page_token=token,
            )

        def counts(token: str) -> Awaitable[Any]:
            return client.summarize_diff(
                self.call,
                self.repository,
                one,
                two,
                prefix=below,
                delimiter="/",
                from_merge_base=from_merge_base,
                page_size=size,
                page_token=token,
            )

        expected = {path: pair for path, pair in changes.items() if path.startswith(below)}
        found = self.run(_changes(page))
        assert {path: _versions(*pair) for path, pair in found.items()} == _numbers(expected)
        summary = self.run(summary_of(counts))
        assert {each.path: _counted(each.counts) for each in summary.folders} == _folders(
            expected, below
        )

    @rule(at=numbers, size=st.integers(1, 4), by=numbers)
    def uncommitted(self, at: int, size: int, by: int) -> None:
        branch = self.branch(at)
        client = self.client(by)

        def page(token: str) -> Awaitable[Any]:
            return client.diff_uncommitted(
                self.call, self.repository, branch, page_size=size, page_token=token
            )

        found = self.run(_changes(page))
        expected = self.model.changes(branch)
        assert {path: _versions(*pair) for path, pair in found.items()} == _numbers(expected)

    @rule(at=numbers, is_first_parent=st.booleans(), size=st.integers(1, 5), by=numbers)
    def log(self, at: int, is_first_parent: bool, size: int, by: int) -> None:
        text, commit = self.ref(at)

        async def work() -> list[str]:
            found, token = [], ""
            while True:
                page = await self.client(by).list_commits(
                    self.call,
                    self.repository,
                    text,
                    page_size=size,
                    page_token=token,
                    first_parent=is_first_parent,
                )
                found += [each.commit_id for each in page.commits]
                if not (token := page.next_page_token):
                    return found

        chain = self.model.first_parents if is_first_parent else self.model.history
        assert self.run(work()) == [self.ids[number] for number in chain(commit)]

    @invariant()
    def branches_show_their_contents(self) -> None:
        if not self.ids:
            return
        for place, branch in enumerate(sorted(self.model.branches)):
            found = self.run(self._listing(branch, "", 1 + (self.steps + place) % 7, self.steps))
            assert {path: unpack(packed).size for path, packed in found.items()} == {
                path: each.version for path, each in sorted(self.model.contents(branch).items())
            }, branch

    def teardown(self) -> None:
        if not self.ids:
            return
        client = self.client(0)
        found = self.run(client.list_branches(self.call, self.repository, include_hidden=True))
        assert {each.branch_id: each.commit_id for each in found.branches} == {
            name: self.ids[each.head] for name, each in sorted(self.model.branches.items())
        }
        tags = self.run(client.list_tags(self.call, self.repository))
        assert {each.tag_id: each.commit_id for each in tags.tags} == {
            name: self.ids[number] for name, number in sorted(self.model.tags.items())
        }
        for number in range(len(self.ids)):
            self.read_commit(number * 2, 5, "", number)

    async def _listing(self, ref: str, below: str, size: int, by: int) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        token = ""
        while True:
            page = await self.client(by).list_entries(
                self.call,
                self.repository,
                ref,
                prefix=below,
                page_size=size,
                page_token=token,
            )
            assert len(page.paths) <= size
            for path, packed in zip(page.paths, page.entries, strict=True):
                assert not found or path > max(found)
                found[path] = packed
            if not (token := page.next_page_token):
                return found


async def _changes(page: Callable[[str], Awaitable[Any]]) -> dict[str, tuple[bytes, bytes]]:
    """Returns all changes of a paged difference, by path."""
    found: dict[str, tuple[bytes, bytes]] = {}
    token = ""
    while True:
        read = await page(token)
        for path, left, right in zip(
            read.paths, read.left_entries, read.right_entries, strict=True
        ):
            assert not found or path > max(found)
            found[path] = (left, right)
        if not (token := read.next_page_token):
            return found


def _versions(left: bytes, right: bytes) -> tuple[int | None, int | None]:
    return (unpack(left).size if left else None, unpack(right).size if right else None)


def _numbers(
    changes: dict[str, tuple[Object | None, Object | None]],
) -> dict[str, tuple[int | None, int | None]]:
    return {
        path: (old and old.version, new and new.version) for path, (old, new) in changes.items()
    }


def _counted(counts: pb.MergeCounts) -> tuple[int, int, int]:
    return counts.added_count, counts.changed_count, counts.removed_count


def _folders(
    changes: dict[str, tuple[Object | None, Object | None]], prefix: str
) -> dict[str, tuple[int, int, int]]:
    """Counts added, changed and removed paths up to the first slash after a prefix."""
    found: dict[str, tuple[int, int, int]] = {}
    for path, (old, new) in changes.items():
        name, slash, _ = path.removeprefix(prefix).partition("/")
        added, changed, removed = found.get(prefix + name + slash, (0, 0, 0))
        found[prefix + name + slash] = (
            added + (old is None),
            changed + (old is not None and new is not None),
            removed + (new is None),
        )
    return found
