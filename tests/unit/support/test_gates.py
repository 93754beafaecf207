"""A held call that never comes tells which calls came instead."""

import lake
import pytest
from lake import reached
from tests.support.faults.gates import GatedKv

from tarn.kv.mem import MemKv
from tarn.kv.port import Group, Partition, PartitionKind


async def test_a_gate_that_holds_nothing_names_the_calls_that_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lake, "scaled", lambda _: 0.01)
    kv = GatedKv(MemKv())
    rows = Partition("rows", PartitionKind.PLAIN)
    await kv.get_many(rows, [b"before"])
    gate = kv.hold("set_if", b"a")
    await kv.set_many(rows, [Group(b"a", ((b"a", b"1"),))])
    with pytest.raises(AssertionError, match=r"calls since it was made: set_many of rows$"):
        await reached(gate)
    await kv.close()
