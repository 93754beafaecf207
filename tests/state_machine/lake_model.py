"""A lake as dictionaries: the semantics of docs/design/versioning.md, written a second time.

The model never reads the system. It decides what each operation does or why it is refused; the machine compares.
Nothing here is fast, and nothing is shared with Tarn's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from model_merge import (
    UNDECIDED,
    Choice,
    Contents,
    Object,
    RefusedError,
    Side,
    folded,
    merged,
    same,
    set_at,
)
from model_reflog import Reflogs
from model_rules import Rules

__all__ = [
    "UNDECIDED",
    "Branch",
    "Choice",
    "Commit",
    "Contents",
    "LakeModel",
    "Object",
    "RefusedError",
    "Side",
]

LEVELS = 4
"""Folds of merge bases within folds; beyond, paths that differ are undecided."""


@dataclass(frozen=True)
class Commit:
    """A commit.

    Attributes:
        number: place in the order of creation. Commits are made at different times, so it orders them by time.
        parents: numbers of its parents.
        contents: its objects.
        generation: 1 more than the greatest of its parents.
    """

    number: int
    parents: tuple[int, ...]
    contents: Contents
    generation: int


@dataclass
class Branch:
    """A branch.

    Attributes:
        head: number of its commit.
        staged: uncommitted objects by path; None deletes.
    """

    head: int
    staged: dict[str, Object | None] = field(default_factory=dict)


class LakeModel:
    """Commits, branches and tags of one repository. A refused method raises `RefusedError` and changes nothing."""

    def __init__(self) -> None:
        self.commits = [Commit(0, (), {}, 0)]
        self.branches = {"main": Branch(0)}
        self.tags: dict[str, int] = {}
        self.default = "main"
        self.reflogs = Reflogs()
        self.reflogs.add("main", "CREATE", None, 0)
        self.rules = Rules()

    # ---- reading

    def contents(self, branch: str) -> dict[str, Object]:
        """Returns what a reader of a branch sees."""
        found = self.branches[branch]
        seen: dict[str, Object | None] = {**self.commits[found.head].contents, **found.staged}
        return {path: each for path, each in seen.items() if each is not None}

    def changes(self, branch: str) -> dict[str, tuple[Object | None, Object | None]]:
        """Returns the uncommitted changes of a branch: committed and staged object by path."""
        head = self.commits[self.branches[branch].head].contents
        return self.differences(head, self.contents(branch))

    @staticmethod
    def differences(
        left: Contents, right: Contents
    ) -> dict[str, tuple[Object | None, Object | None]]:
        """Returns the paths whose versions differ, with the object of each side."""
        pairs = {path: (left.get(path), right.get(path)) for path in {*left, *right}}
        return {path: pair for path, pair in sorted(pairs.items()) if not same(*pair)}

    def ancestors(self, commit: int) -> set[int]:
        """Returns every commit that is reachable from a commit, which is one of them."""
        reached, waiting = {commit}, [commit]
        while waiting:
            parents = set(self.commits[waiting.pop()].parents) - reached
            reached |= parents
            waiting += parents
        return reached

    def history(self, commit: int) -> list[int]:
        """Returns the ancestors of a commit, greatest generation first, then newest first."""
        return sorted(
            self.ancestors(commit),
            key=lambda number: (self.commits[number].generation, number),
            reverse=True,
        )

    def first_parents(self, commit: int) -> list[int]:
        """Returns a commit, its first parent, that one's first parent, and so on."""
        found = [commit]
        while parents := self.commits[found[-1]].parents:
            found.append(parents[0])
        return found

    def merge_bases(self, lefts: Sequence[int], right: int) -> list[int]:
        """Returns the common ancestors that no other one descends from, greatest generation first, then newest."""
        common = set().union(*map(self.ancestors, lefts)) & self.ancestors(right)
        # All ancestors of a common ancestor are common ones, so it is enough to look at parents.
        behind = {parent for each in common for parent in self.commits[each].parents}
        return [each for each in self.history(right) if each in common - behind]

    def base_contents(self, bases: Sequence[int], level: int = 1) -> Contents:
        """Returns the base of a merge: the contents of the merge base, or the fold of several."""
        result = self.commits[bases[0]].contents
        for at in range(1, len(bases)):
            below = self.merge_bases(bases[:at], bases[at])
            is_known = len(below) == 1 or level < LEVELS
            base = self.base_contents(below, level + 1) if is_known else None
            result = folded(base, result, self.commits[bases[at]].contents)
        return result

    def changes_since_base(
        self, left: int, right: int
    ) -> dict[str, tuple[Object | None, Object | None]]:
        """Returns the differences from the merge base of two commits to the right one.

        A path that is undecided in the base is compared with the left one.
        """
        ours = self.commits[left].contents
        before: dict[str, Object] = {}
        for path, old in self.base_contents(self.merge_bases([left], right)).items():
            set_at(before, path, ours.get(path) if old == UNDECIDED else old)
        return self.differences(before, self.commits[right].contents)

    # ---- writing

    def put(self, branch: str, path: str, written: Object, *, only_new: bool = False) -> None:
        """Stages an object; with `only_new`, only at a path that has none."""
        self._refuse_blocked(branch, "write")
        if only_new and path in self.contents(branch):
            raise RefusedError("PRECONDITION_FAILED")
        self.branches[branch].staged[path] = written

    def delete(self, branch: str, path: str) -> None:
        """Stages a deletion."""
        self._refuse_blocked(branch, "write")
        self.branches[branch].staged[path] = None

    def commit(self, branch: str, *, allow_empty: bool = False) -> int:
        """Commits the staged changes; returns the new head."""
        self._refuse_blocked(branch, "commit")
        found = self.branches[branch]
        changes = self.changes(branch)
        if not changes and not allow_empty:
            raise RefusedError("NOTHING_TO_COMMIT")
        after = dict(self.commits[found.head].contents)
        for path, (_, new) in changes.items():
            set_at(after, path, new)
        return self._publish(branch, (found.head,), after, "COMMIT")

    def reset(self, branch: str, is_part: Callable[[str], bool] = lambda _: True) -> None:
        """Discards the staged changes of all paths, or of some."""
        self._refuse_blocked(branch, "force")
        found = self.branches[branch]
        found.staged = {path: each for path, each in found.staged.items() if not is_part(path)}

    def move(self, branch: str, target: int, expected: int, *, force: bool) -> None:
        """Puts a branch on another commit."""
        self._refuse_blocked(branch, "force")
        if not force:
            self._refuse_dirty(branch)
        if self.branches[branch].head != expected:
            raise RefusedError("REF_MOVED")
        self._set_head(branch, target, "MOVE")

    # ---- commits from commits

    def merge(
        self,
        branch: str,
        source: int,
        choice: Choice,
        *,
        squash: bool = False,
        allow_empty: bool = False,
        fast_forward_only: bool = False,
    ) -> int:
        """Merges a commit into a branch; returns the new head."""
        self._refuse_blocked(branch, "merge")
        self._refuse_dirty(branch)
        head = self.branches[branch].head
        bases = self.merge_bases([head], source)
        if bases == [source] and not allow_empty:
            raise RefusedError("NOTHING_TO_MERGE")
        if fast_forward_only:
            if bases != [head]:
                raise RefusedError("NOT_FAST_FORWARD")
            self._set_head(branch, source, "MERGE")
            return source
        after = self.merged(source, head, choice)
        if squash and after == self.commits[head].contents and not allow_empty:
            raise RefusedError("NOTHING_TO_MERGE")
        return self._publish(branch, (head,) if squash else (head, source), after, "MERGE")

    def revert(
        self, branch: str, commit: int, parent: int, choice: Choice, *, allow_empty: bool
    ) -> int:
        """Undoes the change from a parent (by number, from 1; 0 for the only one) to a commit."""
        self._refuse_blocked(branch, "commit")
        older, newer = self._compared_with(commit, parent), self.commits[commit].contents
        return self._apply(branch, newer, older, choice, allow_empty, "REVERT")

    def cherry_pick(
        self, branch: str, commit: int, parent: int, choice: Choice, *, allow_empty: bool
    ) -> int:
        """Makes the change from a parent (by number, from 1; 0 for the only one) to a commit again."""
        self._refuse_blocked(branch, "commit")
        older, newer = self._compared_with(commit, parent), self.commits[commit].contents
        return self._apply(branch, older, newer, choice, allow_empty, "CHERRY_PICK")

    def revert_range(
        self,
        branch: str,
        since: int,
        last: int,
        parent: int,
        choice: Choice,
        *,
        squash: bool = False,
    ) -> list[int]:
        """Undoes a commit and its first parents that `since` does not contain, newest first.

        Returns:
            The new commits, oldest first.
        """
        self._refuse_blocked(branch, "commit")
        contained = self.ancestors(since)
        line = [number for number in self.first_parents(last) if number not in contained]
        if parent > 1 or not line:
            raise RefusedError("INVALID_ARGUMENT")
        steps = []
        for number in line:
            is_merge = len(self.commits[number].parents) > 1
            older = self._compared_with(number, parent if is_merge else 0)
            steps.append((self.commits[number].contents, older))
        self._refuse_dirty(branch)
        head = self.branches[branch].head
        listings: list[Contents] = [self.commits[head].contents]
        for undone, older in steps:
            after = merged(undone, older, listings[-1], choice)
            if after != listings[-1]:
                listings.append(after)
        if len(listings) == 1 or (squash and listings[-1] == listings[0]):
            raise RefusedError("NOTHING_TO_COMMIT")
        made = []
        for contents in listings[-1:] if squash else listings[1:]:
            head = self._make((head,), contents)
            made.append(head)
        self._set_head(branch, head, "REVERT")
        return made

    def merge_branch(
        self, name: str, dest: int, source: int, choice: Choice, *, allow_empty: bool
    ) -> int:
        """Creates a branch at the merge of a commit into another one; returns the merge."""
        self._refuse_blocked(name, "other")
        if name in self.branches:
            raise RefusedError("BRANCH_EXISTS")
        if self.merge_bases([dest], source) == [source] and not allow_empty:
            raise RefusedError("NOTHING_TO_MERGE")
        after = self.merged(source, dest, choice)
        self._refuse_taken(name)
        made = self._make((dest, source), after)
        self._set_head(name, made, "CREATE")
        return made

    def merged(self, source: int, dest: int, choice: Choice) -> dict[str, Object]:
        """Returns the contents of the merge of two commits."""
        base = self.base_contents(self.merge_bases([dest], source))
        return merged(base, self.commits[source].contents, self.commits[dest].contents, choice)

    def conflicts(self, source: int, dest: int, choice: Choice) -> list[str]:
        """Returns the conflicts of a merge that a choice does not decide, in order."""
        try:
            self.merged(source, dest, choice)
        except RefusedError as refused:
            return refused.paths or []
        return []

    # ---- refs

    def create_branch(self, branch: str, commit: int) -> None:
        """Creates a branch; a tag or a branch of that name refuses it."""
        self._refuse_blocked(branch, "other")
        self._refuse_taken(branch)
        self._set_head(branch, commit, "CREATE")

    def create_tag(self, tag: str, commit: int) -> None:
        """Creates a tag; a tag or a branch of that name refuses it."""
        self._refuse_blocked(tag, "other")
        self._refuse_taken(tag)
        self.tags[tag] = commit

    def delete_tag(self, tag: str) -> None:
        """Deletes a tag."""
        self._refuse_blocked(tag, "other")
        if tag not in self.tags:
            raise RefusedError("TAG_NOT_FOUND")
        del self.tags[tag]

    def delete_branch(self, name: str) -> None:
        """Deletes a branch that is not the default branch."""
        self._refuse_blocked(name, "delete")
        if name not in self.branches:
            raise RefusedError("BRANCH_NOT_FOUND")
        if name == self.default:
            raise RefusedError("INVALID_ARGUMENT")
        self.reflogs.add(name, "DELETE", self.branches.pop(name).head, None)

    def restore_branch(self, name: str) -> int:
        """Creates a deleted branch again; returns its head, which is its last one."""
        self._refuse_blocked(name, "other")
        if name in self.branches:
            raise RefusedError("BRANCH_EXISTS")
        head = self.reflogs.last_head(name)
        if head is None:
            raise RefusedError("BRANCH_NOT_FOUND")
        self._refuse_taken(name)
        self._set_head(name, head, "RESTORE")
        return head

    def set_default(self, name: str, expected: str) -> None:
        """Makes a branch the default branch; `expected` is the present one, empty for any."""
        self._refuse_blocked(name, "other")
        if name not in self.branches:
            raise RefusedError("BRANCH_NOT_FOUND")
        if expected not in ("", self.default):
            raise RefusedError("SETTINGS_CHANGED")
        self.default = name

    def _refuse_blocked(self, branch: str, kind: str) -> None:
        if reason := self.rules.refusal(branch, kind):
            raise RefusedError(reason)

    def _set_head(self, branch: str, commit: int, operation: str) -> None:
        """Creates a branch, or moves it, without uncommitted changes."""
        old = self.branches[branch].head if branch in self.branches else None
        self.reflogs.add(branch, operation, old, commit)
        self.branches[branch] = Branch(commit)

    def _refuse_taken(self, name: str) -> None:
        if name in self.branches:
            raise RefusedError("BRANCH_EXISTS")
        if name in self.tags:
            raise RefusedError("TAG_EXISTS")

    def _refuse_dirty(self, branch: str) -> None:
        if changes := self.changes(branch):
            raise RefusedError("BRANCH_DIRTY", sorted(changes))

    def _compared_with(self, commit: int, parent: int) -> Contents:
        parents = self.commits[commit].parents
        if parent > max(len(parents), 1) or (len(parents) > 1 and not parent):
            raise RefusedError("INVALID_ARGUMENT")
        if not parents:
            return {}
        return self.commits[parents[max(parent, 1) - 1]].contents

    def _apply(
        self,
        branch: str,
        base: Contents,
        source: Contents,
        choice: Choice,
        allow_empty: bool,
        operation: str,
    ) -> int:
        self._refuse_dirty(branch)
        head = self.branches[branch].head
        after = merged(base, source, self.commits[head].contents, choice)
        if after == self.commits[head].contents and not allow_empty:
            raise RefusedError("NOTHING_TO_COMMIT")
        return self._publish(branch, (head,), after, operation)

    def _publish(
        self, branch: str, parents: tuple[int, ...], contents: Contents, operation: str
    ) -> int:
        made = self._make(parents, contents)
        self._set_head(branch, made, operation)
        return made

    def _make(self, parents: tuple[int, ...], contents: Contents) -> int:
        generation = 1 + max(self.commits[number].generation for number in parents)
        made = Commit(len(self.commits), parents, contents, generation)
        self.commits.append(made)
        return made.number
