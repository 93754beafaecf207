"""Rules that change branches and tags: writes, commits, resets and moves."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule
from lake_model import Object, RefusedError
from machine_base import (
    BRANCHES,
    TAGS,
    MachineBase,
    contents,
    numbers,
    packed,
    paths,
    rarely,
)

from tarn.core.condition import WriteCondition


class Writes(MachineBase):
    """Puts, deletions, commits, resets, moves; branches and tags."""

    @rule(at=numbers, path=paths, version=st.integers(1, 4), address=st.integers(1, 2), by=numbers)
    def put(self, at: int, path: str, version: int, address: int, by: int) -> None:
        branch = self.branch(at)
        entry = packed(version, address)
        self.model.put(branch, path, Object(version, address))
        self.run(self.client(by).stage(self.call, self.repository, self.uid, branch, path, entry))

    @rule(at=numbers, path=paths, version=st.integers(1, 4), by=numbers)
    def create_object(self, at: int, path: str, version: int, by: int) -> None:
        branch = self.branch(at)
        self.written += 1
        address = 1000 + self.written
        operation = f"create {self.written}"
        entry = packed(version, address, operation)
        new = WriteCondition(if_none_match=True)
        client = self.client(by)
        work = client.stage(self.call, self.repository, self.uid, branch, path, entry, new)
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

    @rule(at=numbers, by=numbers)
    def reset(self, at: int, by: int) -> None:
        branch = self.branch(at)
        self.model.reset(branch)
        self.run(self.client(by).reset_branch(self.call, self.repository, branch))

    @rule(at=numbers, prefix=st.sampled_from(["a", "a/", "b/d", "e/1", "c/"]), by=numbers)
    def reset_prefix(self, at: int, prefix: str, by: int) -> None:
        branch = self.branch(at)
        self.model.reset(branch, lambda path: path.startswith(prefix))
        self.run(self.client(by).reset_branch(self.call, self.repository, branch, prefix=prefix))
        self.outcomes["reset_prefix"] += 1

    @rule(at=numbers, path=paths, by=numbers)
    def reset_path(self, at: int, path: str, by: int) -> None:
        branch = self.branch(at)
        self.model.reset(branch, lambda each: each == path)
        self.run(self.client(by).reset_branch(self.call, self.repository, branch, path=path))

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
