"""The common part of all rules of the state machine: calls, the comparison with the model, random choices."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, NamedTuple, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from lake_lab import TwoReplicas
from lake_model import Choice, LakeModel, RefusedError, Side

from tarn.client.graveler import GravelerClient
from tarn.core.entry import Entry, pack
from tarn.core.errors import TarnError
from tarn.core.moments import iso_time
from tarn_proto.graveler.v1 import merge_service_pb2 as pb

T = TypeVar("T")

PATHS = ["a", "a/b", "a/c", "b/d/e", "b/d/f", "b/g", "c/ü", "c/z", "d", "e/1", "e/2", "e/3"]
BRANCHES = ["dev", "etl", "fix"]
NAMES = [*BRANCHES, "main", "what-if"]
TAGS = ["v1", "v2", "fix"]  # a branch may have the last name
_PAIR = {Side.SOURCE: pb.MERGE_SIDE_SOURCE, Side.DEST: pb.MERGE_SIDE_DESTINATION}


class Mark(NamedTuple):
    """A moment between two operations.

    Attributes:
        time_us: Unix microseconds.
        heads: the heads of the branches then.
        commit_count: number of the commits that had been made.
    """

    time_us: int
    heads: dict[str, int]
    commit_count: int


numbers = st.integers(min_value=0, max_value=2**16)
paths = st.sampled_from(PATHS)
sides = st.sampled_from([None, None, Side.SOURCE, Side.DEST])
rarely = st.sampled_from([False, False, False, True])
mostly = st.sampled_from([True, True, True, False])
contents = st.dictionaries(paths, st.integers(0, 4), min_size=1, max_size=5)
"""Versions by path; 0 deletes."""


class MachineBase(RuleBasedStateMachine):
    """Plays on a new repository of a lab. A subclass names the lab and the loop that it runs in."""

    lab: ClassVar[TwoReplicas]
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
        self.marks: list[Mark] = []
        self.are_rules_settled = True
        self.crossed: tuple[int, int] | None = None
        """Two commits with several merge bases, if a rule made some."""

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

    def attempt(
        self, name: str, expected: Callable[[], object], work: Coroutine[Any, Any, Any]
    ) -> bool:
        """As `both`, for an operation without a result; returns whether it was made."""
        try:
            self.both(name, expected, work)
        except RefusedError:
            return False
        return True

    def settle_rules(self) -> None:
        """Waits until every replica refuses writes by the newest rules."""
        if not self.are_rules_settled:
            self.lab.let_rules_settle()
            self.log_in()
            self.are_rules_settled = True

    def log_in(self) -> None:
        self.call = self.run(self.lab.log_in())

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
        for name in NAMES:
            for count in range(4):
                head = self.head_before(name, count)
                if head is not None:
                    found[f"{name}@{{{count}}}"] = head
            for mark in self.marks[-3:]:
                if name in mark.heads:
                    found[f"{name}@{{{iso_time(mark.time_us)}}}"] = mark.heads[name]
        texts = [*found, *self.ids]
        text = texts[number % len(texts)]
        return text, found[text] if text in found else self.ids.index(text)

    def head_before(self, branch: str, count: int) -> int | None:
        """Returns the model's head of a branch before its last `count` changes."""
        found = self.model.branches.get(branch)
        head = None if found is None else found.head
        return self.model.reflogs.head_before(branch, count, head)

    def number_of(self, branch: str) -> int:
        """Returns a number for which `branch` and `ref` choose a branch."""
        return sorted(self.model.branches).index(branch)

    def create(self) -> None:
        """Makes the repository."""
        self.log_in()
        made = self.run(self.client(0).create_repository(self.call, self.repository))
        self.uid = made.instance_uid
        head = self.run(self.client(0).get_commit(self.call, self.repository, "main"))
        self.know(0, head.commit_id)

    @rule()
    def clean(self) -> None:
        self.run(self.lab.clean())
        self.are_rules_settled = True
        # Time has passed: the caller token may have expired.
        self.log_in()

    def mark(self) -> None:
        """Remembers this moment."""
        heads = {name: each.head for name, each in self.model.branches.items()}
        self.marks.append(Mark(self.lab.clock.now_us(), heads, len(self.model.commits)))


def _check_refusal(expected: RefusedError, error: TarnError) -> None:
    assert error.reason.value == expected.reason, error
    if expected.paths is None:
        return
    for path in expected.paths[:10]:
        assert path in error.message, error


def packed(version: int, address: int, operation_id: str = "") -> bytes:
    """Returns the entry of a version of an object at an address."""
    place = address.to_bytes(16, "big")
    return pack(Entry(version, 0, place, bytes(16), operation_id=operation_id))


def choice_of(
    side: Side | None, below: str
) -> tuple[Choice, list[pb.ConflictChoice], pb.MergeSide]:
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
