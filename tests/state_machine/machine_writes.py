"""Rules that change branches and tags: writes, commits, resets and moves."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule
from lake_model import Object, RefusedError
from machine_base import (
    NAMES,
    TAGS,
    MachineBase,
    contents,
    numbers,
    packed,
    paths,
    rarely,
)

from tarn.core.condition import UNCONDITIONAL, WriteCondition


class Writes(MachineBase):
    """Puts, deletions, commits, resets, moves; branches and tags."""

    def stage(
        self,
        by: int,
        branch: str,
        path: str,
        entry: bytes,
        condition: WriteCondition = UNCONDITIONAL,
    ) -> Coroutine[Any, Any, bool]:
        """Stages an entry as a gateway does."""
        place = (self.call, self.repository, self.uid, branch, path, entry, condition)
        return self.client(by).stage(*place)

    @rule(at=numbers, path=paths, version=st.integers(1, 4), address=st.integers(1, 2), by=numbers)
    def put(self, at: int, path: str, version: int, address: int, by: int) -> None:
        self.settle_rules()
        branch = self.branch(at)
        entry = packed(version, address)
        self.attempt(
            "put",
            lambda: self.model.put(branch, path, Object(version, address)),
            self.stage(by, branch, path, entry),
        )

    @rule(at=numbers, path=paths, version=st.integers(1, 4), by=numbers)
    def create_object(self, at: int, path: str, version: int, by: int) -> None:
        self.settle_rules()
        branch = self.branch(at)
        self.written += 1
        address = 1000 + self.written
        operation = f"create-{self.written}"
        entry = packed(version, address, operation)
        new = WriteCondition(if_none_match=True)
        work = self.stage(by, branch, path, entry, new)
        self.attempt(
            "create_object",
            lambda: self.model.put(branch, path, Object(version, address), only_new=True),
            work,
        )

    @rule(at=numbers, path=paths, by=numbers)
    def delete(self, at: int, path: str, by: int) -> None:
        self.settle_rules()
        branch = self.branch(at)
        work = self.client(by).unstage(self.call, self.repository, branch, path)
        self.attempt("delete", lambda: self.model.delete(branch, path), work)

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

    def commit_first(self, branch: str, by: int) -> None:
        """Commits what is staged, so that the next operation is not refused for it."""
        if self.model.branches[branch].staged:
            self.commit(self.number_of(branch), by, allow_empty=False)

    @rule(at=numbers, changes=contents, by=numbers)
    def load(self, at: int, changes: dict[str, int], by: int) -> None:
        """Changes several paths and commits them, as a job does."""
        for path, version in sorted(changes.items()):
            if version:
                self.put(at, path, version, 1, by)
            else:
                self.delete(at, path, by)
        self.commit(at, by, allow_empty=False)
        self.mark()

    @rule(
        at=numbers,
        prefix=st.sampled_from([None, None, "a", "a/", "b/d", "c/"]),
        path=st.one_of(st.none(), paths),
        by=numbers,
    )
    def reset(self, at: int, prefix: str | None, path: str | None, by: int) -> None:
        """Discards all uncommitted changes, or those of a prefix, or of a path."""
        branch = self.branch(at)
        part: dict[str, str] = {}
        if prefix is not None:
            part = {"prefix": prefix}
        elif path is not None:
            part = {"path": path}

        def is_part(each: str) -> bool:
            return each.startswith(prefix) if prefix is not None else path in (None, each)

        work = self.client(by).reset_branch(self.call, self.repository, branch, **part)
        self.attempt(f"reset{part and [*part]}", lambda: self.model.reset(branch, is_part), work)

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

    @rule(name=st.sampled_from(NAMES), source=numbers, by=numbers)
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

    @rule(name=st.sampled_from(NAMES), by=numbers)
    def delete_branch(self, name: str, by: int) -> None:
        work = self.client(by).delete_branch(self.call, self.repository, name)
        self.attempt("delete_branch", lambda: self.model.delete_branch(name), work)

    @rule(at=numbers, source=numbers, is_new=st.booleans(), by=numbers)
    def lose_branch(self, at: int, source: int, is_new: bool, by: int) -> None:
        """Deletes a branch, perhaps creates another one of its name and deletes that, too, and restores it."""
        name = self.branch(at)
        self.delete_branch(name, by)
        if is_new and name not in self.model.branches:
            self.mark()
            self.create_branch(name, source, by + 1)
            self.delete_branch(name, by)
        self.restore_branch(name, by + 1)
        self.mark()

    @rule(name=st.sampled_from(NAMES), by=numbers)
    def restore_branch(self, name: str, by: int) -> None:
        work = self.client(by).restore_branch(self.call, self.repository, name)
        try:
            head, made = self.both("restore_branch", lambda: self.model.restore_branch(name), work)
        except RefusedError:
            return
        assert (made.branch_id, made.commit_id) == (name, self.ids[head])

    @rule(name=st.sampled_from(TAGS), source=numbers, by=numbers)
    def create_tag(self, name: str, source: int, by: int) -> None:
        text, commit = self.ref(source)
        work = self.client(by).create_tag(self.call, self.repository, name, text)
        self.attempt("create_tag", lambda: self.model.create_tag(name, commit), work)

    @rule(name=st.sampled_from(TAGS), by=numbers)
    def delete_tag(self, name: str, by: int) -> None:
        work = self.client(by).delete_tag(self.call, self.repository, name)
        self.attempt("delete_tag", lambda: self.model.delete_tag(name), work)
