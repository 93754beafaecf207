"""The blocks that collections must keep (I9), and those that they must delete.

The block store of the simulator calls `Kept.deleting` for each block that it deletes. An acknowledged commit refers to
its blocks for ever, and a reader may read a block for a while after it has found its entry. At the quiet end
everything that can be read must be there, and everything else must be gone: this module finds out by itself what the
records, rows and listings refer to, without the code that reads roots.

An entry whose writer was told that the outcome is unknown may name a deleted block: its row may land a day later.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tests.sim.least import DELETED
from tests.support.check.history import OpKind, Outcome

from tarn.block.port import BlockKey, BlockNotFoundError
from tarn.block.rangefile import decode_metarange, decode_range, metarange_path, range_path
from tarn.core.entry import address_of
from tarn.core.ids import BranchId, MetarangeId, RepositoryId, physical_path
from tarn.core.listing.metarange import EMPTY_METARANGE
from tarn.kv.commit_records import decode_commit
from tarn.kv.keys import PATHS_END, PATHS_START, RepositoryKeys, after_prefix
from tarn.kv.records import Repository, decode_branch, decode_tag, parse_record
from tarn_proto.store.v1 import graveler_pb2 as store_pb

if TYPE_CHECKING:
    from tests.sim.world import Replica, World

__all__ = ["Kept"]

_DATA = "data/"
_PREFIXES = (_DATA, "_tarn/ranges/", "_tarn/metaranges/")
_LATER_SHARE = 0.3
_ALL = 10_000

Listed = dict[BlockKey, set[int]]
"""The blocks of a listing; of a block of data the values that name it, of others nothing."""


class Kept:
    """The blocks to which something refers that was acknowledged."""

    def __init__(self, world: World, reading_seconds: float) -> None:
        self._world = world
        self._reading_seconds = reading_seconds
        self._random = random.Random(f"kept {world.plan.seed}")
        self._listings: dict[str, tuple[str, MetarangeId]] = {}
        self._read: dict[tuple[str, MetarangeId], Listed] = {}
        self._committed: dict[BlockKey, dict[str, set[int]]] = {}
        self._expired: set[str] = set()
        self._found: list[tuple[set[int], str]] = []
        self._problems: list[str] = []

    # ---- while clients work

    def built(self, commit_id: str, namespace: str, listing: MetarangeId) -> None:
        """Notes the listing of a commit, published or not."""
        self._listings[commit_id] = (namespace, listing)

    def acknowledged(self, commit_id: str) -> None:
        """Notes that a commit was acknowledged. All of its blocks must be there, and stay."""
        if commit_id not in self._listings:
            return
        for key, values in self._listing(*self._listings[commit_id]).items():
            self._committed.setdefault(key, {})[commit_id] = values
            if not self._exists(key) and not self._may_lack(commit_id, key):
                self._missing(key, values, f"acknowledged commit {commit_id[:12]}")

    def expiring(self, commit_id: str) -> None:
        """Notes that a commit expires: it keeps its listing, and its blocks only if a ref names it."""
        if commit_id not in self._expired:
            self._world.log(f"expires {commit_id[:12]}")
            self._world.statistics["expiry: commits"] += 1
        self._expired.add(commit_id)
        self._world.history.expired.setdefault(commit_id, self._world.history.clock)

    def is_expired(self, commit_id: str) -> bool:
        """Whether a commit has expired, or was about to."""
        return commit_id in self._expired

    def _may_lack(self, commit_id: str, key: BlockKey) -> bool:
        return commit_id in self._expired and key.path.startswith(_DATA)

    def deleting(self, key: BlockKey, *, is_swept: bool) -> None:
        """Notes that a block is about to be deleted, by a sweep or by a gateway that could not stage its object."""
        self._world.log(f"deletes {key.path}")
        if is_swept and self._exists(key):
            self._world.statistics[DELETED] += 1
        for commit_id, values in self._committed.get(key, {}).items():
            if not self._may_lack(commit_id, key):
                self._missing(key, values, f"deletion, but acknowledged {commit_id[:12]} has it")

    def looked_up(self, value: int, since: float) -> None:
        """Notes that a reader found a value, whose lookup began at `since`: for a while it can read the block."""
        until = since + self._reading_seconds
        now = self._world.loop.time()
        self._look(value, until)
        if now < until and self._random.random() < _LATER_SHARE:
            self._world.tasks.spawn(self._look_later(value, self._random.uniform(now, until)))

    async def _look_later(self, value: int, moment: float) -> None:
        await asyncio.sleep(moment - self._world.loop.time())
        self._look(value, moment + 1e-6)

    def _look(self, value: int, until: float) -> None:
        key = self._world.values.block(value)
        if self._world.loop.time() <= until and not self._exists(key):
            self._missing(key, {value}, "a reader")

    def _missing(self, key: BlockKey, values: set[int], where: str) -> None:
        if self._world.erased.has_row(key):
            return  # see `Erased.compare`
        text = f"{where}: {key.path} in {key.namespace} is missing"
        self._world.log(f"MISSING {text}, v{sorted(values)}")
        if values:
            self._found.append((set(values), text))
        else:
            self._problems.append(text)

    def _exists(self, key: BlockKey) -> bool:
        try:
            self._world.blocks.find(key)
        except BlockNotFoundError:
            return False
        return True

    def _listing(self, namespace: str, listing: MetarangeId) -> Listed:
        """Returns the blocks of a listing; one that cannot be read has those that are known."""
        known = self._read.get((namespace, listing))
        if known is not None:
            return known
        found: Listed = {}
        is_whole = True
        if listing != EMPTY_METARANGE.metarange_id:
            key = BlockKey(namespace, metarange_path(listing))
            found[key] = set()
            if not self._exists(key):
                return found
            for info in decode_metarange(listing, self._world.blocks.find(key).body).ranges:
                of_range = BlockKey(namespace, range_path(info.range_id))
                found[of_range] = set()
                if not self._exists(of_range):
                    is_whole = False
                    continue
                body = self._world.blocks.find(of_range).body
                for packed in decode_range(info.range_id, body).values.to_pylist():
                    address = address_of(packed)
                    if address is not None:
                        of_data = BlockKey(namespace, physical_path(address))
                        found.setdefault(of_data, set()).add(self._world.values.of(packed))
        if is_whole:
            self._read[namespace, listing] = found
        return found

    # ---- at the quiet end

    def is_doubtful(self, value: int) -> bool:
        """Whether a write of the value has no certain outcome, so that a row of it may have landed at any time."""
        return any(
            op.kind is OpKind.PUT and op.value == value and op.outcome is Outcome.INFO
            for op in self._world.history.ops
        )

    def violations(self) -> Iterator[str]:
        """Yields what was missing although it was acknowledged."""
        yield from self._problems
        for values, text in self._found:
            sure = [value for value in sorted(values) if not self.is_doubtful(value)]
            if sure:
                yield f"{text}: v{sure[0]}"

    async def compare(self, replica: Replica, repository_id: str) -> None:
        """Compares the blocks of a repository with what refers to them, after everything was collected."""
        repository = await replica.graveler.repositories.get(RepositoryId(repository_id))
        namespace = repository.storage_namespace
        referenced, reserved = await self._referenced_or_reserved(replica, repository)
        there = {
            BlockKey(namespace, info.path)
            for prefix in _PREFIXES
            for info in await self._world.blocks.list_page(namespace, prefix, "", _ALL)
        }
        for key, values in referenced.items():
            if key not in there:
                self._missing(key, values, f"{repository_id} at the quiet end")
        reserved.add(BlockKey(namespace, metarange_path(EMPTY_METARANGE.metarange_id)))
        for key in sorted(there - set(referenced) - reserved, key=str):
            self._problems.append(f"{key.path} of {repository_id} is garbage, and was not deleted")
        self._world.statistics["collection: blocks at the quiet end"] += len(there)
        await self._world.erased.compare(replica, repository, referenced, there)

    async def _committed_listings(
        self, replica: Replica, repository: Repository
    ) -> list[tuple[MetarangeId, bool, bool]]:
        """Returns the listing of each commit; whether a branch, a tag or a reflog leads to the commit; and whether it
        has expired, and none of these names it."""
        kv, keys = replica.kv, replica.graveler.repositories.keys_of(repository)
        prefix = RepositoryKeys.commit("")
        rows = await kv.scan(keys.commits, prefix, after_prefix(prefix), _ALL)
        commits = {key[len(prefix) :].decode(): decode_commit(row) for key, row in rows}
        left: list[str] = []
        prefix = RepositoryKeys.branch("")
        for name, row in await kv.scan(keys.refs, prefix, after_prefix(prefix), _ALL):
            branch = decode_branch(row)
            left.append(branch.commit_id)
            branch_id = BranchId(name[len(prefix) :].decode())
            changes = await replica.graveler.reflog.page(repository, branch_id, "", _ALL)
            # An entry stays in the outbox until the next change of the head, however old it is.
            for entry in (*changes.entries, *branch.outbox):
                left += [each for each in (entry.old_commit_id, entry.new_commit_id) if each]
        prefix = RepositoryKeys.tag("")
        for _, row in await kv.scan(keys.refs, prefix, after_prefix(prefix), _ALL):
            left.append(decode_tag(row).commit_id)
        prefix = RepositoryKeys.EXPIRED
        rows = await kv.scan(keys.commits, prefix, after_prefix(prefix), _ALL)
        emptied = {key[len(prefix) :].decode() for key, _ in rows} - set(left)
        self._world.statistics["expiry: commits without objects"] += len(emptied)
        reachable: set[str] = set()
        while left:
            commit_id = left.pop()
            if commit_id not in reachable and commit_id in commits:
                reachable.add(commit_id)
                left += commits[commit_id].parents
        return [
            (commit.metarange_id, each in reachable, each in emptied)
            for each, commit in commits.items()
        ]

    async def referenced(self, replica: Replica, repository: Repository) -> Listed:
        """Returns all blocks to which something refers."""
        return (await self._referenced_or_reserved(replica, repository))[0]

    def missing(self, blocks: Iterable[BlockKey]) -> list[BlockKey]:
        """Returns those blocks that are not there."""
        return [key for key in blocks if not self._exists(key)]

    async def _referenced_or_reserved(
        self, replica: Replica, repository: Repository
    ) -> tuple[Listed, set[BlockKey]]:
        """Returns all blocks to which something refers, and others that may be there or not."""
        namespace = repository.storage_namespace
        found, listings = await self._of_branches(replica, repository)
        reserved = await self._of_uploads(replica, repository)
        for listing, is_reachable, is_emptied in await self._committed_listings(
            replica, repository
        ):
            blocks = self._listing(namespace, listing)
            if is_emptied:
                found.update({key: set() for key in blocks if not key.path.startswith(_DATA)})
            elif is_reachable or all(map(self._exists, blocks)):
                listings.add(listing)
            else:  # a build that was disturbed left its row, and was made again
                reserved.update(blocks)
                self._world.statistics["collection: unreachable commits that are damaged"] += 1
        for listing in listings:
            for key, values in self._listing(namespace, listing).items():
                found.setdefault(key, set()).update(values)
        return found, reserved

    async def _of_branches(
        self, replica: Replica, repository: Repository
    ) -> tuple[Listed, set[MetarangeId]]:
        """Returns the blocks of staged rows, and the compacted listings."""
        kv, keys = replica.kv, replica.graveler.repositories.keys_of(repository)
        found: Listed = {}
        listings: set[MetarangeId] = set()
        prefix = RepositoryKeys.branch("")
        for name, row in await kv.scan(keys.refs, prefix, after_prefix(prefix), _ALL):
            branch = decode_branch(row)
            if branch.is_deleted:
                continue
            if branch.compacted_metarange_id is not None:
                listings.add(branch.compacted_metarange_id)
            listings.update(pin.metarange_id for pin in branch.pins)
            for token in branch.tokens:
                partition = keys.token(BranchId(name[len(prefix) :].decode()), token)
                for _, packed in await kv.scan(partition, PATHS_START, PATHS_END, _ALL):
                    address = address_of(packed)
                    if address is not None:
                        key = BlockKey(repository.storage_namespace, physical_path(address))
                        found.setdefault(key, set()).add(self._world.values.of(packed))
        return found, listings

    async def _of_uploads(self, replica: Replica, repository: Repository) -> set[BlockKey]:
        """Returns the blocks of the uploads whose records are kept; some of them were never made."""
        kv, keys = replica.kv, replica.graveler.repositories.keys_of(repository)
        reserved: set[BlockKey] = set()
        prefix = RepositoryKeys.UPLOAD_DAYS
        for name, _ in await kv.scan(keys.refs, prefix, after_prefix(prefix), _ALL):
            day = keys.day_of(name)
            assert day is not None, name
            for _, row in await kv.scan(keys.uploads(day), b"multipart/", b"multipart0", _ALL):
                record = parse_record(store_pb.UploadRecord(), row)
                for address in filter(None, (record.address, record.linked_address)):
                    path = physical_path(address)
                    reserved.add(BlockKey(repository.storage_namespace, path))
        return reserved
