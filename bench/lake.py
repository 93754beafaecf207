"""A graveler in this process with one repository and one branch, for the benchmarks of its parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tarn.aio.task_set import TaskSet
from tarn.block.opening import open_blocks
from tarn.config import load
from tarn.core.commit import Commit
from tarn.core.ids import BranchId, RepositoryId
from tarn.kv.opening import open_kv
from tarn.kv.port import Kv
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_graveler.assembly import Graveler, GravelerSettings, assemble
from tarn_graveler.config import open_committed_of
from tarn_graveler.records.branches import BranchName

MAIN = BranchId("main")


class LakeParts(NamedTuple):
    """The parts of a graveler with one repository.

    Attributes:
        name: of its only branch.
    """

    graveler: Graveler
    kv: Kv
    name: BranchName


@asynccontextmanager
async def opened_parts(
    folder: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[LakeParts]:
    """Makes a repository in an empty folder, or in the store that the variables name."""
    variables = {"HOME": str(folder), "TARN_DATA_DIR": str(folder / "data"), **(environment or {})}
    config = load(None, variables)
    clock, tasks = SystemClock(), TaskSet()
    async with AsyncExitStack() as stack:
        kv = await open_kv(config, clock, SystemIds(clock))
        stack.push_async_callback(kv.close)
        blocks = await open_blocks(config, clock)
        stack.push_async_callback(blocks.close)
        committed = await stack.enter_async_context(open_committed_of(config, blocks))
        graveler = assemble(
            settings=GravelerSettings("bench"),
            kv=kv,
            blocks=blocks,
            committed=committed,
            clock=clock,
            ids=SystemIds(clock),
            tasks=tasks,
        )
        reserved = await graveler.repositories.reserve(RepositoryId("lake"), "", MAIN)
        repository = reserved.repository
        built = await committed.build(repository.storage_namespace, None, [])
        root = await graveler.commits.add(
            repository, Commit((), built.metarange_id, "ann", "", 0, 0, ())
        )
        name = BranchName(repository, MAIN)
        await graveler.branches.create(name, root)
        await graveler.repositories.publish(reserved)
        yield LakeParts(graveler, kv, name)
