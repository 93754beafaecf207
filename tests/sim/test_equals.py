"""The rules of equal objects, on histories that break them (`tests.sim.equals`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from tests.sim.equals import Discard, as_told, wrong_addresses
from tests.sim.values import Values
from tests.support.check.history import Commit, History, Op, OpKind, Outcome
from tests.support.clock import ManualClock

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey
from tarn.core.entry import identity_of

_MAIN = "lake/main"


@dataclass
class _Erased:
    """The erasures: none, but for what a test adds.

    Attributes:
        since: as `Erased.since`.
        discards: as `Erased.discards`.
    """

    since: dict[BlockKey, int] = field(default_factory=dict)
    discards: set[int] = field(default_factory=set)

    def has_row(self, key: BlockKey) -> bool:
        """Whether a block is erased."""
        return key in self.since


@dataclass
class _World:
    """As much of a world as the rules look at."""

    history: History = field(default_factory=History)
    values: Values = field(default_factory=lambda: Values(MemBlockStore(ManualClock())))
    discards: list[Discard] = field(default_factory=list)
    erased: _Erased = field(default_factory=_Erased)

    def put(self, value: int, outcome: Outcome = Outcome.OK, path: str = "a") -> Op:
        op = self.history.begin("c0", OpKind.PUT, _MAIN, path, value)
        self.history.finish(op, outcome)
        return op

    def commit(self, parent: str, contents: dict[str, int]) -> str:
        op = self.history.begin("c0", OpKind.COMMIT, _MAIN)
        op.commit_id = f"commit {op.number}"
        self.history.finish(op, Outcome.OK)
        made = Commit(op.commit_id, f"#{op.number}", (parent,) if parent else (), contents)
        self.history.commits[op.commit_id] = made
        return op.commit_id

    @property
    def wrong(self) -> list[str]:
        return [invariant for invariant, _ in wrong_addresses(cast("Any", self))]


async def _with_two() -> tuple[_World, int, int, str]:
    """Returns a world with two equal objects, and its first commit."""
    world = _World()
    old = await world.values.new()
    new = await world.values.new(old)
    return world, old, new, world.commit("", {})


async def test_equal_objects_have_one_identity_and_two_addresses() -> None:
    world, old, new, _ = await _with_two()
    values = world.values
    one, other = values.packed(old), values.packed(new)
    assert identity_of(one) == identity_of(other)
    assert values.block(old) != values.block(new)
    assert (values.of(one), values.of(other)) == (old, new)
    assert values.same(new) == values.same(old) == old
    third = await values.new(new)
    assert values.same(third) == old


async def test_to_clients_equal_objects_are_one_value() -> None:
    world, old, new, first = await _with_two()
    op = world.put(new)
    op.expected = op.observed = new
    commit_id = world.commit(first, {"a": new})
    told = as_told(cast("Any", world))
    assert (told.ops[op.number].value, told.ops[op.number].expected) == (old, old)
    assert told.ops[op.number].observed == old
    assert told.commits[commit_id].contents == {"a": old}
    assert op.value == new


async def test_a_commit_has_the_newest_of_equal_entries() -> None:
    world, old, new, first = await _with_two()
    world.put(old)
    world.put(new)
    world.commit(first, {"a": new})
    assert world.wrong == []
    world.commit(first, {"a": old})
    assert world.wrong == ["I4"]


async def test_a_commit_keeps_the_equal_entry_of_its_parent() -> None:
    world, old, new, first = await _with_two()
    world.put(old)
    second = world.commit(first, {"a": old})
    world.put(new)
    world.commit(second, {"a": old})
    assert world.wrong == []


async def test_a_put_whose_effect_may_come_later_explains_an_older_entry() -> None:
    world, old, new, first = await _with_two()
    world.put(old, Outcome.INFO)
    world.put(new)
    world.commit(first, {"a": old})
    assert world.wrong == []


async def test_an_erasure_discards_only_the_newest_entry() -> None:
    world, old, new, _ = await _with_two()
    world.put(old)
    world.discards.append(Discard(_MAIN, "a", world.values.block(old), world.history.tick()))
    world.put(new)
    assert world.wrong == []
    world.discards.append(Discard(_MAIN, "a", world.values.block(old), world.history.tick()))
    assert world.wrong == ["I4"]


async def test_an_equal_object_of_another_path_is_not_the_one_that_was_put() -> None:
    world, old, new, _ = await _with_two()
    world.put(old, path="a")
    world.put(new, path="b")
    read = world.history.begin("c0", OpKind.GET, _MAIN, "a")
    read.value = old
    world.history.finish(read, Outcome.OK)
    assert world.wrong == []
    read.value = new
    assert world.wrong == ["I2"]


@pytest.mark.parametrize("undone", [False, True])
async def test_an_object_that_is_written_after_its_erasure_replaces_it(*, undone: bool) -> None:
    world, old, new, first = await _with_two()
    world.put(old)
    second = world.commit(first, {"a": old})
    world.erased.since[world.values.block(old)] = world.history.tick()
    world.put(new)
    if undone:
        reset = world.history.begin("c1", OpKind.RESET, _MAIN)
        world.history.finish(reset, Outcome.INFO)
    world.commit(second, {"a": old})
    assert world.wrong == ([] if undone else ["I4"])


async def test_an_object_that_was_written_before_the_erasure_may_be_no_change() -> None:
    world, old, new, first = await _with_two()
    world.put(old)
    second = world.commit(first, {"a": old})
    world.put(new)
    world.erased.since[world.values.block(old)] = world.history.tick()
    world.commit(second, {"a": old})
    assert world.wrong == []


@pytest.mark.parametrize("discarded", [False, True])
async def test_an_entry_beneath_a_discarded_one_is_gone_with_it(*, discarded: bool) -> None:
    world, old, new, first = await _with_two()
    third = await world.values.new()
    world.put(old)
    world.commit(first, {"a": old})
    world.erased.since[world.values.block(old)] = world.history.tick()
    world.put(new)
    world.put(third)
    world.erased.since[world.values.block(third)] = world.history.tick()
    if discarded:
        world.discards.append(Discard(_MAIN, "a", world.values.block(third), world.history.tick()))
    read = world.history.begin("c0", OpKind.GET, _MAIN, "a")
    read.value = old
    world.history.finish(read, Outcome.OK)
    assert world.wrong == ([] if discarded else ["I4"])
