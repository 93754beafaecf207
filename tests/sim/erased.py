"""The blocks that erasures must keep, and those that they must delete (docs/design/erase.md).

The block store of the simulator calls `Erased.deleting` for each block that an eraser deletes: a plan that has begun
must list it, an operation must have written it at a path that the plan's pattern matches, and the row of its address
must be durable. After a certificate none of the listed blocks is there, nor that of any other matching entry which is
older than the plan. At the quiet end, each entry whose block is missing is in the list of the plan that erased it: so
no writer brought an erased address back, and no reference escaped.

This module reads the files of plans and the rows of addresses from the stores themselves. It does not care whether
erasures remove uncommitted rows.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq
from tests.support.check.history import OpKind, Outcome
from tests.support.sim.kv_sqlite import SimSqlite

from tarn.block.port import BlockKey, BlockNotFoundError
from tarn.core.ids import physical_path
from tarn.kv.keys import RepositoryKeys

if TYPE_CHECKING:
    from tests.sim.world import Replica, World

    from tarn.kv.records import Repository

__all__ = ["Erased"]

_FOLDER: Final = "_tarn/erased/"
_QUORUM: Final = 2
_COMMITS: Final = "/commits"


@dataclass(frozen=True)
class _Plan:
    """A plan, as its files say.

    Attributes:
        pattern: of the paths.
        cutoff_us: younger addresses are left out.
        pairs: all paths and blocks of its list.
        doomed: the blocks that it deletes.
    """

    pattern: str
    cutoff_us: int
    pairs: AbstractSet[tuple[str, BlockKey]]
    doomed: AbstractSet[BlockKey]


class Erased:
    """The erasures of a run.

    Attributes:
        problems: what must never happen.
        since: time of the history at which the row of a block was certainly durable.
        discards: numbers of the operations of the history that are discards of erasures.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._plans: dict[str, _Plan] = {}
        self._begun_at: dict[str, int] = {}
        self._rows: set[BlockKey] = set()
        self.problems: list[str] = []
        self.since: dict[BlockKey, int] = {}
        self.discards: set[int] = set()

    def _problem(self, text: str) -> None:
        self._world.log(f"ERASURE {text}")
        self.problems.append(text)

    # ---- while clients work

    def plan_ids(self) -> list[str]:
        """Returns the ids of all plans in the block store, oldest first."""
        return [plan_id for _, plan_id in self._with("/plan.json")]

    def planned(self, plan_id: str, begun: int) -> None:
        """Notes that a plan was made, which began at a time of the history."""
        self._begun_at[plan_id] = begun

    def deleting(self, key: BlockKey) -> None:
        """Notes that an eraser is about to delete a block."""
        world = self._world
        world.log(f"erases {key.path}")
        if not self._exists(key):
            return
        world.statistics["erasure: blocks deleted"] += 1
        plans = [plan for plan in self._begun().values() if key in plan.doomed]
        if not plans:
            self._problem(f"an erasure deletes {key.path}, which is in no plan that has begun")
        elif not any(
            _matches(plan.pattern, path) for plan in plans for path in self._written_at(key)
        ):
            self._problem(f"an erasure deletes {key.path}, which no path matches")
        if not self.has_row(key):
            self._problem(f"an erasure deletes {key.path}, whose row is not durable")
        self.since.setdefault(key, world.history.tick())

    def certified(self, plan_id: str) -> None:
        """Notes that a run ended with a certificate."""
        namespace = {each: where for where, each in self._with("/plan.json")}[plan_id]
        for key in sorted(self._plan(namespace, plan_id).doomed, key=str):
            if self._exists(key):
                self._problem(f"{key.path} is there after the certificate of {plan_id}")

    def has_row(self, key: BlockKey) -> bool:
        """Whether the row that says why a block is missing is durable."""
        if key in self._rows or not key.path.startswith("data/"):
            return key in self._rows
        row = RepositoryKeys.ERASED + key.path.rpartition("/")[2].encode()
        if is_durable := self._is_durable(row):
            self._rows.add(key)
        return is_durable

    def _is_durable(self, row: bytes) -> bool:
        store = self._world.store
        if isinstance(store, SimSqlite):
            partitions = store._rows._partitions.items()
            return any(name.endswith(_COMMITS) and row in rows.values for name, rows in partitions)
        assert self._world.cassandra is not None, "there are two stores"
        holding = [
            node
            for node in self._world.cassandra._nodes
            if any(place[0].endswith(_COMMITS) and row in node.cells[place] for place in node.cells)
        ]
        return len(holding) >= _QUORUM

    # ---- files

    def _with(self, name: str) -> Iterator[tuple[str, str]]:
        """Yields namespace and id of the plans that have a file with this name."""
        found = {
            (path[len(_FOLDER) :].partition("/")[0], namespace)
            for namespace, blocks in self._world.blocks._namespaces.items()
            for path in blocks
            if path.startswith(_FOLDER) and name in path
        }
        yield from ((namespace, plan_id) for plan_id, namespace in sorted(found))

    def _begun(self) -> Mapping[str, _Plan]:
        return {plan_id: self._plan(where, plan_id) for where, plan_id in self._with("/begun.json")}

    def _plan(self, namespace: str, plan_id: str) -> _Plan:
        if plan_id not in self._plans:
            values = json.loads(self._file(namespace, plan_id, "plan.json"))
            body = self._file(namespace, plan_id, "list.parquet")
            rows = pq.read_table(io.BytesIO(body)).to_pylist()
            keyed = [(BlockKey(namespace, physical_path(row["address"])), row) for row in rows]
            self._plans[plan_id] = _Plan(
                values["pattern"],
                values["cutoff_us"],
                {(row["path"], key) for key, row in keyed},
                {key for key, row in keyed if row["matches"] and not row["too_young"]},
            )
        return self._plans[plan_id]

    def _file(self, namespace: str, plan_id: str, name: str) -> bytes:
        return self._world.blocks.find(BlockKey(namespace, f"{_FOLDER}{plan_id}/{name}")).body

    def _exists(self, key: BlockKey) -> bool:
        try:
            self._world.blocks.find(key)
        except BlockNotFoundError:
            return False
        return True

    # ---- the history

    def _written_at(self, key: BlockKey) -> set[str]:
        """Returns the paths at which operations wrote a block."""
        values = self._world.values
        return {
            op.key
            for op in self._world.history.ops
            if op.kind is OpKind.PUT and op.key and op.value and op.value > 0
            if values.block(op.value) == key
        }

    def _paths(self, value: int) -> set[str]:
        ops = self._world.history.ops
        return {op.key for op in ops if op.kind is OpKind.PUT and op.value == value and op.key}

    def _is_since(self, value: int, plan_id: str) -> bool:
        """Whether an upload may have been completed since a plan began: its address may be old then."""
        begun = self._begun_at.get(plan_id, -1)
        return any(
            op.is_upload and not (op.outcome is Outcome.OK and op.end < begun)
            for op in self._world.history.ops
            if op.kind is OpKind.PUT and op.value == value
        )

    # ---- at the quiet end

    async def compare(
        self,
        replica: Replica,
        repository: Repository,
        referenced: Mapping[BlockKey, AbstractSet[int]],
        there: AbstractSet[BlockKey],
    ) -> None:
        """Compares what certificates promise with the blocks that are there and the entries that name them."""
        begun = self._begun()
        for _, plan_id in self._with("/certificate-"):
            self._world.statistics["erasure: plans with a certificate"] += 1
            plan = begun[plan_id]
            for key in sorted(plan.doomed & there, key=str):
                self._problem(f"{key.path} is there in spite of the certificate of {plan_id}")
            self._find_escaped(plan_id, plan, referenced, there)
        for key, values in referenced.items():
            if key not in there and self.has_row(key):
                await self._explain(replica, repository, key, values, begun)

    def _find_escaped(
        self,
        plan_id: str,
        plan: _Plan,
        referenced: Mapping[BlockKey, AbstractSet[int]],
        there: AbstractSet[BlockKey],
    ) -> None:
        """Reports matching entries that are older than a certified plan, and whose blocks are there."""
        for key, values in referenced.items():
            if key not in there or not values or _time_us(key) > plan.cutoff_us:
                continue
            for value in sorted(values):
                if self._world.kept.is_doubtful(value) or self._is_since(value, plan_id):
                    continue
                for path in sorted(self._paths(value)):
                    if _matches(plan.pattern, path):
                        text = f"{path} with v{value}, {key.path}, escaped plan {plan_id}"
                        self._problem(text)

    async def _explain(
        self,
        replica: Replica,
        repository: Repository,
        key: BlockKey,
        values: AbstractSet[int],
        begun: Mapping[str, _Plan],
    ) -> None:
        """Requires that graveler says which plan erased a block, and that the plan lists who refers to it."""
        self._world.statistics["erasure: entries without blocks"] += 1
        address = bytes.fromhex(key.path.rpartition("/")[2])
        told = await replica.graveler.erased.find(repository, [address])
        plan = begun.get(told[address].plan_id) if address in told else None
        if plan is None or key not in plan.doomed:
            self._problem(f"{key.path} is missing, and no plan says why: {told}")
            return
        for value in sorted(values):
            if self._world.kept.is_doubtful(value):
                continue
            for path in sorted(self._paths(value)):
                if (path, key) not in plan.pairs:
                    text = f"{path} lost v{value}, {key.path}, which {told[address].plan_id} does not list"
                    self._problem(text)


def _matches(pattern: str, path: str) -> bool:
    """Whether a path matches: erasers use whole paths, folders and `**`."""
    if pattern.endswith("**"):
        return path.startswith(pattern[:-2])
    return path == pattern


def _time_us(key: BlockKey) -> int:
    return int(key.path.rpartition("/")[2][:12], 16) * 1000
