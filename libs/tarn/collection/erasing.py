"""Erases objects out of all history: a plan that a person looks at, and a run that deletes the blocks of the plan.

Both hold the lease of a collection, so neither a collection nor another erasure runs beside them. The order of a run
is what makes it safe (docs/design/erase.md): the rows of all addresses are durable before the first block is deleted,
so a reader that misses a block learns why; uncommitted entries are discarded before the blocks go, so that no commit
holds an object that cannot be read; every block is looked for again; and all history is searched again. Every step may
be repeated, so a run that died is simply begun again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarn.aio.parallel import for_each
from tarn.block.port import BlockKey, BlockNotFoundError, KeepsVersions
from tarn.client.erasures import ErasureClient
from tarn.collection.block_names import BlockKind, paths_of
from tarn.collection.collector import Collector
from tarn.collection.deleting import delete_paths
from tarn.collection.erase_search import (
    SearchResult,
    StagedBatch,
    addresses_of,
    find_matching,
    find_others,
)
from tarn.collection.erase_uncommitted import discard, find_uncommitted
from tarn.collection.erasure_files import (
    OBJECTS_SCHEMA,
    Certificate,
    ErasurePlan,
    begin_run,
    encode_list,
    erasable_of,
    has_begun,
    plan_ids,
    read_list,
    read_plan,
    wanted_of,
    write_certificate,
    write_outcomes,
    write_plan,
)
from tarn.collection.graveler_run import GravelerRun
from tarn.collection.marking import CollectionRun, Lake
from tarn.collection.other_store import refuse_other_store
from tarn.collection.outcomes import Outcome
from tarn.collection.quarantine import Tally
from tarn.collection.references import RootBatch
from tarn.core.erasure import (
    ADDRESS_BYTES,
    ADDRESSES_MAX,
    check_pattern,
    check_plan_id,
    literal_prefix,
)
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import MetarangeId
from tarn.core.listing.sizes import sum_of
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import collection_service_pb2 as collection_pb

__all__ = ["Eraser", "Erasure"]

_LOOKS_AT_ONCE: Final = 16
_PROMISE: Final = (
    "The blocks that outcomes-<run>.parquet names are deleted: the block store was asked for each of them after the "
    "deletion, and had none. It said that it keeps no older versions of blocks. No commit, branch or tag can be read "
    "at the paths of list.parquet with the contents that they had, except for blocks that are marked as too young. "
    "What stays: paths, sizes, MD5s and metadata of the objects, in listings and logs; copies outside this namespace, "
    "such as backups and replicas of the bucket; blocks that were overwritten before they were committed and that no "
    "row names, until a collection deletes them; and what was written since."
)


@dataclass(frozen=True, slots=True)
class Erasure:
    """The result of a run.

    Attributes:
        plan: the plan.
        discarded: uncommitted entries of each branch that were discarded.
        deleted: blocks that are gone.
        failed: blocks that the store did not delete, or that are there again; run the plan again.
        error: why, of the last of them; empty if there is none.
        came_since: matching objects of a second plan that this plan does not have; they need another plan.
        versions: why the block store may keep older versions; empty if it keeps none.
        certificate: the proof of the run; None: something failed, or the block store may keep versions.
    """

    plan: ErasurePlan
    discarded: Mapping[str, int]
    deleted: Tally
    failed: Tally
    error: str
    came_since: int
    versions: str
    certificate: Certificate | None


@dataclass(frozen=True, slots=True)
class Eraser:
    """Plans and runs erasures.

    Attributes:
        collector: of the same installation; its block store, lease and folder are used.
        client: of graveler's erasures.
        user: who plans or runs, for the files.
    """

    collector: Collector
    client: ErasureClient
    user: str

    async def plan(
        self, repository_id: str, pattern: str, *, everything: bool = False
    ) -> ErasurePlan:
        """Finds the objects whose paths match, and writes the plan into the namespace; deletes nothing.

        Args:
            repository_id: the repository.
            pattern: of paths (`tarn.core.glob`).
            everything: also a pattern without a literal begin.

        Raises:
            TarnError: INVALID; COLLECTION_RUNNING, COLLECTION_HELD; the errors of `find_matching`.
        """
        check_pattern(pattern, everything=everything)
        async with self._leased(repository_id) as (lake, run, roots):
            progress, blocks = self.collector.progress, lake.blocks
            found = await find_matching(roots, blocks, lake.namespace, pattern, progress)
            others = await find_others(roots, blocks, lake.namespace, found.rows, progress)
            made, objects = self._planned(lake, run, pattern, found, others)
            counts = await self._discard(lake, roots, made, objects, validate_only=True)
            body, digest = encode_list(objects)
            made = replace(made, list_sha256=digest, uncommitted=counts)
            await write_plan(blocks, lake.namespace, made, body)
        return made

    def _planned(
        self, lake: Lake, run: CollectionRun, pattern: str, found: SearchResult, others: pa.Table
    ) -> tuple[ErasurePlan, pa.Table]:
        """Returns a plan without its hash, and the rows of its list."""
        both = pa.concat_tables(
            [
                found.rows.append_column("matches", pa.repeat(True, len(found.rows))),
                others.append_column("matches", pa.repeat(False, len(others))),
            ]
        )
        too_young = pa.array(_times_us(both["address"]) > run.cutoff_us)
        objects = both.append_column("too_young", too_young).cast(OBJECTS_SCHEMA)
        matching = objects.filter(objects["matches"])
        young = matching.filter(matching["too_young"])
        return ErasurePlan(
            plan_id=run.run_id,
            repository=lake.repository,
            pattern=pattern,
            plan_us=lake.clock.now_us(),
            planned_by=self.user,
            cutoff_us=run.cutoff_us,
            list_sha256="",
            erasable=_tally(erasable_of(objects)),
            too_young=_tally(young.group_by("address").aggregate([("size", "max")])),
            paths=pc.count_distinct(matching["path"]).as_py(),
            others=pc.count_distinct(others["path"]).as_py(),
            heads=found.heads,
            staged=found.staged,
            outside=found.outside,
            incomplete=found.incomplete,
        ), objects

    async def run(self, repository_id: str, plan_id: str) -> Erasure:
        """Deletes the blocks of a plan that are not too young; may be repeated.

        Raises:
            TarnError: NOT_FOUND: there is no such plan; CORRUPT: its files are not those that were written;
                COLLECTION_RUNNING, COLLECTION_HELD; the errors of graveler and of the block store. Blocks that were
                deleted until then stay deleted, and the next run goes on.
        """
        check_plan_id(plan_id)
        async with self._leased(repository_id) as (lake, run, roots):
            made = await read_plan(lake.blocks, lake.namespace, plan_id)
            objects = await read_list(lake.blocks, lake.namespace, made)
            rows = erasable_of(objects)
            begin_us = lake.clock.now_us()
            await begin_run(lake.blocks, lake.namespace, plan_id, self.user, begin_us)
            await self._note(repository_id, run.run_id, plan_id, rows, roots.graveler)
            discarded = await self._discard(lake, roots, made, objects, validate_only=False)
            outcomes, error = await self._delete(lake, roots.graveler, rows)
            outcomes = await self._look_again(lake, rows, outcomes)
            look_us = lake.clock.now_us()
            # Objects that came meanwhile: by a row that landed late, or the completion of an upload that is older than
            # the plan.
            late = await self._discard(lake, roots, made, objects, validate_only=False)
            discarded = dict(Counter(discarded) + Counter(late))
            versions = await _versions(lake)
            since = await self._came_since(lake, roots, made, objects)
            told = pa.table(
                {"block": _blocks_of(rows["address"]), "size": rows["size"], "outcome": outcomes}
            )
            digest = await write_outcomes(lake.blocks, lake.namespace, plan_id, run.run_id, told)
            is_gone = pc.equal(told["outcome"], Outcome.DELETED.value)
            deleted, failed = _tally(told.filter(is_gone)), _tally(told.filter(pc.invert(is_gone)))
            certificate = None
            if not failed.count and not versions:
                certificate = Certificate(
                    plan=made,
                    erased_by=self.user,
                    begin_us=begin_us,
                    look_us=look_us,
                    deleted=deleted,
                    run_id=run.run_id,
                    outcomes_sha256=digest,
                    came_since=since,
                    promise=_PROMISE,
                    discarded=discarded,
                )
                await write_certificate(lake.blocks, lake.namespace, certificate)
        text = "" if error is None else error.message
        return Erasure(made, discarded, deleted, failed, text, since, versions, certificate)

    async def repair(self, repository_id: str) -> int:
        """Writes the rows of all runs that began again, from their lists; returns the number of their addresses.

        After a restore of metadata from before a run, which lack its rows. Deletes nothing, so it needs no lease:
        collections are held after a restore.

        Raises:
            TarnError: ADDRESS_TOO_YOUNG, FEATURE_LEVEL; CORRUPT: the files of a plan are not those that were written;
                FAILED_PRECONDITION: the block store is that of another installation.
        """
        namespace = (await self.collector.record(repository_id)).storage_namespace
        blocks = self.collector.blocks
        await refuse_other_store(blocks, namespace, repository_id)
        count = 0
        async for plan_id in plan_ids(blocks, namespace):
            if await has_begun(blocks, namespace, plan_id):
                made = await read_plan(blocks, namespace, plan_id)
                rows = erasable_of(await read_list(blocks, namespace, made))
                await self._note(repository_id, "", plan_id, rows)
                count += len(rows)
        return count

    @asynccontextmanager
    async def _leased(
        self, repository_id: str
    ) -> AsyncIterator[tuple[Lake, CollectionRun, _Roots]]:
        """Holds the lease of a collection, as a mark that never completes; the last mark stays as it is."""
        collector = self.collector
        phase = collection_pb.COLLECTION_PHASE_MARK
        leased = collector.leased(repository_id, phase, "", is_erasure=True)
        async with leased as (lake, run, graveler):
            yield lake, run, _Roots(graveler, self.client, collector.call, repository_id, run)
            await collector.give_up(lake, run)

    async def _note(
        self,
        repository_id: str,
        run_id: str,
        plan_id: str,
        rows: pa.Table,
        graveler: GravelerRun | None = None,
    ) -> None:
        """Makes the rows of all addresses durable; in a run of `graveler`, repeats calls that it cannot answer."""
        packed = _packed(rows["address"])
        self.collector.progress.begin("note the erased addresses", len(rows))
        page = ADDRESSES_MAX * ADDRESS_BYTES
        for at in range(0, len(packed), page):
            addresses = packed[at : at + page]

            async def send(addresses: bytes = addresses) -> None:
                call = self.collector.call()
                await self.client.erase_addresses(call, repository_id, run_id, plan_id, addresses)

            await (send() if graveler is None else graveler.repeated(send))
            self.collector.progress.done += len(addresses) // ADDRESS_BYTES

    async def _discard(
        self,
        lake: Lake,
        roots: _Roots,
        made: ErasurePlan,
        objects: pa.Table,
        *,
        validate_only: bool,
    ) -> dict[str, int]:
        """Discards the uncommitted entries of a plan, or counts them; returns how many on each branch."""
        progress, prefix = self.collector.progress, literal_prefix(made.pattern)
        wanted = wanted_of(objects)
        entries = await find_uncommitted(
            roots, lake.blocks, lake.namespace, wanted, prefix, progress
        )
        return await discard(
            self.client,
            self.collector.call,
            roots.graveler.repeated,
            (roots.repository_id, roots.run.run_id),
            entries,
            progress,
            validate_only=validate_only,
        )

    async def _delete(
        self, lake: Lake, graveler: GravelerRun, rows: pa.Table
    ) -> tuple[list[str], TarnError | None]:
        """Deletes the blocks; returns the outcome of each, and the last error."""
        paths = _blocks_of(rows["address"]).to_pylist()
        outcomes: list[str] = []
        error: TarnError | None = None
        self.collector.progress.begin("delete", len(paths))
        for at in range(0, len(paths), ADDRESSES_MAX):
            is_deleted, problem = await delete_paths(
                lake.blocks,
                lake.namespace,
                paths[at : at + ADDRESSES_MAX],
                graveler.confirm,
                lake.clock,
                self.collector.rng,
            )
            error = problem or error
            outcomes += [
                (Outcome.DELETED if each else Outcome.FAILED).value for each in is_deleted.tolist()
            ]
            self.collector.progress.done += len(is_deleted)
        return outcomes, error

    async def _look_again(self, lake: Lake, rows: pa.Table, outcomes: list[str]) -> list[str]:
        """Asks for every block; returns the outcomes, in which one that answers has failed."""
        paths = _blocks_of(rows["address"]).to_pylist()
        found = list(outcomes)
        self.collector.progress.begin("look again", len(paths))

        async def look(at: int) -> None:
            try:
                await lake.blocks.stat(BlockKey(lake.namespace, paths[at]))
                found[at] = Outcome.FAILED.value
            except BlockNotFoundError:
                found[at] = Outcome.DELETED.value
            self.collector.progress.done += 1

        await for_each(range(len(paths)), look, _LOOKS_AT_ONCE)
        return found

    async def _came_since(
        self, lake: Lake, roots: _Roots, made: ErasurePlan, objects: pa.Table
    ) -> int:
        """Plans again; returns the number of matching blocks that are not erased by this plan."""
        again = await find_matching(
            roots, lake.blocks, lake.namespace, made.pattern, self.collector.progress
        )
        erased = pc.unique(erasable_of(objects)["address"])
        rows = again.rows.filter(pc.invert(pc.is_in(again.rows["address"], value_set=erased)))
        return int(pc.count_distinct(rows["address"]).as_py())


@dataclass(frozen=True, slots=True)
class _Roots:
    """Implements `HistoryRoots` for one run."""

    graveler: GravelerRun
    client: ErasureClient
    call: Callable[[], Call]
    repository_id: str
    run: CollectionRun

    async def staged(self, prefix: str) -> AsyncGenerator[StagedBatch, None]:
        """See `HistoryRoots.staged`."""
        token = ""
        while True:
            page = await self.graveler.repeated(
                lambda token=token: self.client.staged_rows(  # type: ignore[misc]
                    self.call(), self.repository_id, self.run.run_id, prefix, token
                )
            )
            if len(page.addresses) != ADDRESS_BYTES * len(page.paths):
                text = f"graveler sent {len(page.addresses)} bytes of addresses for {len(page.paths)} rows"
                raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
            columns = [
                pa.array(page.paths, pa.string()),
                addresses_of(page.addresses),
                pa.array(page.sizes, pa.int64()),
            ]
            yield StagedBatch(page.branch_id, pa.table(columns, ["path", "address", "size"]))
            token = page.next_page_token
            if not token:
                return

    def read_roots(self) -> AsyncGenerator[RootBatch, None]:
        """See `HistoryRoots.read_roots`."""
        return self.graveler.read_roots()

    async def in_use(self, listings: Sequence[MetarangeId]) -> set[MetarangeId]:
        """See `HistoryRoots.in_use`."""
        return await self.graveler.in_use(listings)

    async def compacted(self) -> Mapping[str, MetarangeId]:
        """See `HistoryRoots.compacted`."""
        found: dict[str, MetarangeId] = {}
        async with aclosing(self.graveler.history_pages()) as pages:
            async for page in pages:
                for head in page.heads:
                    if head.compacted_metarange_id:
                        found[head.branch_id] = MetarangeId(head.compacted_metarange_id)
                if page.commits:  # the branches come first
                    break
        return found

    async def heads(self) -> Mapping[str, MetarangeId]:
        """See `HistoryRoots.heads`."""
        heads: dict[str, str] = {}
        listings: dict[str, MetarangeId] = {}
        async for page in self.graveler.history_pages():
            for head in page.heads:
                heads.setdefault(head.branch_id, head.commit_id)
            wanted = set(heads.values())
            for commit in page.commits:
                if commit.commit_id in wanted:
                    listings[commit.commit_id] = MetarangeId(commit.metarange_id)
        return {
            branch_id: listings[commit_id]
            for branch_id, commit_id in heads.items()
            if branch_id and commit_id in listings
        }


async def _versions(lake: Lake) -> str:
    """Returns why the block store may keep older versions of deleted blocks; empty if it keeps none."""
    if not isinstance(lake.blocks, KeepsVersions):
        return "this block store cannot tell whether it keeps older versions of blocks"
    return await lake.blocks.kept_versions(lake.namespace)


def _packed(addresses: pa.ChunkedArray) -> bytes:
    return b"".join(addresses.to_pylist())


def _keys(addresses: pa.ChunkedArray) -> np.ndarray:
    return np.frombuffer(_packed(addresses), np.uint8).reshape(-1, ADDRESS_BYTES)


def _blocks_of(addresses: pa.ChunkedArray) -> pa.StringArray:
    return paths_of(BlockKind.DATA, _keys(addresses))


def _times_us(addresses: pa.ChunkedArray) -> np.ndarray:
    """Returns when each address was made, microseconds since the epoch."""
    padded = np.zeros((len(addresses), 8), np.uint8)
    padded[:, 2:] = _keys(addresses)[:, :6]
    return padded.view(">u8").ravel().astype(np.int64) * 1000


def _tally(rows: pa.Table) -> Tally:
    sizes = rows["size"] if "size" in rows.column_names else rows["size_max"]
    return Tally(len(rows), sum_of(sizes.to_numpy()))
