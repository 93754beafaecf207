"""The state machine: random operations on a real lake and on a model of dictionaries, compared after each step."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from lake_lab import Lab
from lake_model import Choice, LakeModel, Object, RefusedError, Side

from tarn.client.graveler import GravelerClient
from tarn.core.condition import WriteCondition
from tarn.core.entry import Entry, pack, unpack
from tarn.core.errors import TarnError
from tarn_proto.graveler.v1 import merge_service_pb2 as pb

__all__ = ["LakeMachine"]

T = TypeVar("T")

PATHS = ["a", "a/b", "a/c", "b/d/e", "b/d/f", "b/g", "c/ü", "c/z", "d", "e/1", "e/2", "e/3"]
BRANCHES = ["dev", "etl", "fix"]
TAGS = ["v1", "v2", "fix"]  # a branch may have the last name
_PAIR = {Side.SOURCE: pb.MERGE_SIDE_SOURCE, Side.DEST: pb.MERGE_SIDE_DESTINATION}

numbers = st.integers(min_value=0, max_value=2**16)
paths = st.sampled_from(PATHS)
sides = st.sampled_from([None, None, Side.SOURCE, Side.DEST])
rarely = st.sampled_from([False, False, False, True])
mostly = st.sampled_from([True, True, True, False])
contents = st.dictionaries(paths, st.integers(0, 4), min_size=1, max_size=5)
"""Versions by path; 0 deletes."""


class LakeMachine(RuleBasedStateMachine):
    """Plays on a new repository of a lab. A subclass names the lab and the loop that it runs in."""

    lab: ClassVar[Lab]
    loop: ClassVar[asyncio.AbstractEventLoop]
    steps: ClassVar[int] = 0
    outcomes: ClassVar[Counter[str]] = Counter()
    _repositories: ClassVar[itertools.count[int]] = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.model = LakeModel()
        self.ids: list[str] = []
        self.repository = f"lake{next(self._repositories)}"
        self.uid = ""
        self.written = 0

    # ---- the system

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a call of the system to its end."""
        type(self).steps += 1

        async def limited() -> T:
            async with asyncio.timeout(30):
                return await work

        return self.loop.run_until_complete(limited())

    def both(
        self, name: str, expected: Callable[[], T], work: Coroutine[Any, Any, Any]
    ) -> tuple[T, Any]:
        """Runs an operation on the model and on the system, and counts it under its name and outcome.

        Returns:
            The result of each; if the model refuses, the system must refuse for the same reason, naming the same
                first paths, and `RefusedError` is raised.
        """
        try:
            result = expected()
        except RefusedError as refused:
            try:
                made = self.run(work)
            except TarnError as error:
                _check_refusal(refused, error)
                self.outcomes[f"{name}: {refused.reason}"] += 1
                raise refused from error
            raise AssertionError(
                f"the model refuses with {refused.reason}, the system made {made}"
            ) from None
        self.outcomes[name] += 1
        return result, self.run(work)

    def new_commit(
        self, name: str, expected: Callable[[], int], work: Coroutine[Any, Any, Any]
    ) -> None:
        """Runs an operation that makes a commit."""
        try:
            number, commit = self.both(name, expected, work)
        except RefusedError:
            return
        self.know(number, commit.commit_id)
        parents = [self.ids[each] for each in self.model.commits[number].parents]
        assert list(commit.parent_ids) == parents
        assert commit.generation == self.model.commits[number].generation

    def know(self, number: int, commit_id: str) -> None:
        """Remembers the id of a commit; one that was known must have that id."""
        if number < len(self.ids):
            assert self.ids[number] == commit_id
            return
        assert number == len(self.ids)
        assert commit_id not in self.ids
        self.ids.append(commit_id)

    def client(self, number: int) -> GravelerClient:
        return self.lab.clients[number % len(self.lab.clients)]

    # ---- choosing from what is there

    def branch(self, number: int) -> str:
        names = sorted(self.model.branches)
        return names[number % len(names)]

    def commit_number(self, number: int) -> int:
        """Chooses a commit; half of the choices are heads."""
        heads = [self.model.branches[name].head for name in sorted(self.model.branches)]
        if number % 2:
            return heads[number // 2 % len(heads)]
        return number // 2 % len(self.model.commits)

    def ref(self, number: int) -> tuple[str, int]:
        """Chooses a ref: its text and its commit."""
        found = {name: each.head for name, each in sorted(self.model.branches.items())}
        found.update(sorted(self.model.tags.items()))
        for name, commit in list(found.items()):
            for place, parent in enumerate(self.model.commits[commit].parents, 1):
                found[f"{name}^{place}"] = parent
            for steps, ancestor in enumerate(self.model.first_parents(commit)[:4]):
                found[f"{name}~{steps}"] = ancestor
        texts = [*found, *self.ids]
        text = texts[number % len(texts)]
        return text, found[text] if text in found else self.ids.index(text)

    def _number_of(self, branch: str) -> int:
        """Returns a number for which `branch` and `ref` choose a branch."""
        return sorted(self.model.branches).index(branch)

    def commit_first(self, branch: str, by: int) -> None:
        """Commits what is staged, so that the next operation is not refused for it."""
        if self.model.branches[branch].staged:
            self.commit(self._number_of(branch), by, allow_empty=False)

    def object(self, version: int, address: int) -> tuple[Object, bytes]:
        return Object(version, address), _packed(version, address)

    # ---- rules

    @initialize()
    def create(self) -> None:
        self.call = self.run(self.lab.log_in())
        made = self.run(self.client(0).create_repository(self.call, self.repository))
        self.uid = made.instance_uid
        head = self.run(self.client(0).get_commit(self.call, self.repository, "main"))
        self.know(0, head.commit_id)

    @rule(at=numbers, path=paths, version=st.integers(1, 4), address=st.integers(1, 2), by=numbers)
    def put(self, at: int, path: str, version: int, address: int, by: int) -> None:
        branch = self.branch(at)
        written, packed = self.object(version, address)
        self.model.put(branch, path, written)
        self.run(self.client(by).stage(self.call, self.repository, self.uid, branch, path, packed))

    @rule(at=numbers, changes=contents, by=numbers)
    def load(self, at: int, changes: dict[str, int], by: int) -> None:
        """Changes several paths and commits them, as a job does."""
        for path, version in sorted(changes.items()):
            if version:
                self.put(at, path, version, 1, by)
            else:
                self.delete(at, path, by)
        self.commit(at, by, allow_empty=False)

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
        self.create_branch(name, self._number_of(dest), by)
        self.load(self._number_of(dest), ours, by)
        self.load(self._number_of(name), theirs, by + 1)
        self.merge(self._number_of(dest), self._number_of(name), side, "", kind, by)

    @rule(at=numbers, path=paths, version=st.integers(1, 4), by=numbers)
    def create_object(self, at: int, path: str, version: int, by: int) -> None:
        branch = self.branch(at)
        self.written += 1
        address = 1000 + self.written
        operation = f"create {self.written}"
        packed = _packed(version, address, operation)
        new = WriteCondition(if_none_match=True)
        client = self.client(by)
        work = client.stage(self.call, self.repository, self.uid, branch, path, packed, new)
        try:
            self.both(
                "create_object",
                lambda: self.model.put(branch, path, Object(version, address), only_new=True),
                work,
            )
        except RefusedError:
            return

    @rule(at=numbers, path=paths, by=numbers)
    def delete(self, at: int, path: str, by: int) -> None:
        branch = self.branch(at)
        self.model.delete(branch, path)
        self.run(self.client(by).unstage(self.call, self.repository, branch, path))

    @rule(at=numbers, by=numbers, allow_empty=rarely)
    def commit(self, at: int, by: int, allow_empty: bool) -> None:
        branch = self.branch(at)

        async def work() -> Any:
            client = self.client(by)
            made = await client.create_commit(
                self.call, self.repository, branch, f"{self.written}", allow_empty=allow_empty
            )
            return made.commit

        self.new_commit(
            "commit", lambda: self.model.commit(branch, allow_empty=allow_empty), work()
        )

    @rule(at=numbers, by=numbers)
    def reset(self, at: int, by: int) -> None:
        branch = self.branch(at)
        self.model.reset(branch)
        self.run(self.client(by).reset_branch(self.call, self.repository, branch))

    @rule(
        at=numbers,
        to=numbers,
        expected=numbers,
        is_expected=st.booleans(),
        force=rarely,
        by=numbers,
    )
    def move(
        self, at: int, to: int, expected: int, is_expected: bool, force: bool, by: int
    ) -> None:
        branch = self.branch(at)
        text, target = self.ref(to)
        known = self.model.branches[branch].head if is_expected else self.commit_number(expected)
        work = self.client(by).move_branch(
            self.call,
            self.repository,
            branch,
            text,
            expected_commit_id=self.ids[known],
            force=force,
        )
        try:
            _, moved = self.both(
                "move", lambda: self.model.move(branch, target, known, force=force), work
            )
        except RefusedError:
            return
        assert moved.commit_id == self.ids[target]

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
        text, commit = self.ref(source)
        options: dict[str, Any] = {
            "squash": kind == "squash",
            "allow_empty": kind == "allow-empty",
            "fast_forward_only": kind == "fast-forward",
        }
        choice, choices, default = _choice(side, below)
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

    @rule(left=numbers, right=numbers, side=sides, below=st.sampled_from(["", "a/**"]), by=numbers)
    def preview(self, left: int, right: int, side: Side | None, below: str, by: int) -> None:
        (dest_text, dest), (source_text, source) = self.ref(left), self.ref(right)
        choice, choices, default = _choice(side, below)
        conflicts = self.model.conflicts(source, dest, choice)

        async def work() -> tuple[Any, list[str]]:
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
            return found, [each.path async for each in every]

        found, listed = self.run(work())
        assert listed == conflicts
        assert found.conflict_count == len(conflicts)
        base = self.model.merge_base(source, dest)
        assert found.base_commit_id == self.ids[base]
        if conflicts:
            return
        merged = self.model.merged(base, source, dest, choice)
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
        choice, choices, default = _choice(side, "")
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

    @rule(name=st.sampled_from(BRANCHES), source=numbers, by=numbers)
    def create_branch(self, name: str, source: int, by: int) -> None:
        text, commit = self.ref(source)
        work = self.client(by).create_branch(self.call, self.repository, name, text)
        try:
            _, made = self.both(
                "create_branch", lambda: self.model.create_branch(name, commit), work
            )
        except RefusedError:
            return
        assert made.commit_id == self.ids[commit]

    @rule(name=st.sampled_from(BRANCHES), by=numbers)
    def delete_branch(self, name: str, by: int) -> None:
        if name in self.model.branches:
            del self.model.branches[name]
            self.run(self.client(by).delete_branch(self.call, self.repository, name))

    @rule(name=st.sampled_from(TAGS), source=numbers, by=numbers)
    def create_tag(self, name: str, source: int, by: int) -> None:
        text, commit = self.ref(source)
        work = self.client(by).create_tag(self.call, self.repository, name, text)
        try:
            self.both("create_tag", lambda: self.model.create_tag(name, commit), work)
        except RefusedError:
            return

    @rule(name=st.sampled_from(TAGS), by=numbers)
    def delete_tag(self, name: str, by: int) -> None:
        if name in self.model.tags:
            del self.model.tags[name]
            self.run(self.client(by).delete_tag(self.call, self.repository, name))

    @rule()
    def clean(self) -> None:
        self.run(self.lab.clean())

    # ---- comparing

    @rule(left=numbers, right=numbers, size=st.integers(1, 4), by=numbers)
    def diff(self, left: int, right: int, size: int, by: int) -> None:
        (one, first), (two, second) = self.ref(left), self.ref(right)
        commits = self.model.commits
        client = self.client(by)

        def page(token: str) -> Awaitable[Any]:
            return client.diff_refs(
                self.call, self.repository, one, two, page_size=size, page_token=token
            )

        found = self.run(_changes(page))
        expected = self.model.differences(commits[first].contents, commits[second].contents)
        assert {path: _versions(*pair) for path, pair in found.items()} == _numbers(expected)

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
        found = self.run(client.list_branches(self.call, self.repository))
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


def _check_refusal(expected: RefusedError, error: TarnError) -> None:
    assert error.reason.value == expected.reason, error
    if expected.paths is None:
        return
    for path in expected.paths[:10]:
        assert path in error.message, error


def _packed(version: int, address: int, operation_id: str = "") -> bytes:
    place = address.to_bytes(16, "big")
    return pack(Entry(version, 0, place, bytes(16), operation_id=operation_id))


def _choice(side: Side | None, below: str) -> tuple[Choice, list[pb.ConflictChoice], pb.MergeSide]:
    """Returns a choice as the model takes it, and as the rpc does: `side` for the paths that match `below`,
    or for all paths if it is empty.
    """
    if side is None:
        return lambda _: None, [], pb.MERGE_SIDE_UNSPECIFIED
    if not below:
        return lambda _: side, [], _PAIR[side]
    folder = below.removesuffix("**")
    chosen = [pb.ConflictChoice(pattern=below, side=_PAIR[side])]
    return (
        lambda path: side if path.startswith(folder) else None,
        chosen,
        pb.MERGE_SIDE_UNSPECIFIED,
    )


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
