"""A recorded bucket of lakeFS, imports of it over graveler's real services, and what users see of the result.

`tests/unit/lakefs/history.tar.gz` was recorded with lakeFS 1.84: `shop/` is the storage namespace after
`peer_history.make_history`, `refs.json` what `dump_refs` returned, `seen.json` what `seen` did.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graveler_service import Service

from tarn.block.committed import Committed
from tarn.block.port import BlockKey
from tarn.block.rangecache import RangeCache
from tarn.core.entry import unpack
from tarn.core.ids import BranchId, physical_path
from tarn.core.listing.breaks import BreakRule
from tarn.core.rules import Settings
from tarn.dump.transfer import Transfer
from tarn.lakefs.bringing import Bringing
from tarn.lakefs.history import DumpIds, ImportProgress, PeerHistory
from tarn.lakefs.importing import HistoryImport
from tarn.lakefs.source import FolderSource, Source
from tarn.lakefs.state import ImportState
from tarn.testing.clock import SeededIds

__all__ = ["NAMESPACE", "Recorded", "opened", "recorded", "shown"]

ARCHIVE = Path(__file__).parents[1] / "unit" / "lakefs" / "history.tar.gz"
NAMESPACE = "local://shop-copy"


@dataclass
class Recorded:
    """The recorded bucket, in a folder of the test's own."""

    folder: Path
    refs: DumpIds
    seen: dict[str, Any] = field(repr=False)

    @property
    def tables(self) -> Path:
        return self.folder / "_lakefs"


def recorded(folder: Path) -> Recorded:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    refs = DumpIds.parse((folder / "refs.json").read_bytes())
    return Recorded(folder / "shop", refs, json.loads((folder / "seen.json").read_text()))


@asynccontextmanager
async def opened(
    service: Service,
    record: Recorded,
    work: Path,
    source: Source | None = None,
    *,
    namespace: str = NAMESPACE,
    settings: Settings | None = None,
    name: str = "shop",
) -> AsyncIterator[tuple[Bringing, PeerHistory, ImportState]]:
    """Yields an import of the recorded bucket, whose dump is read."""
    blocks, clock = service.replicas.blocks, service.clock
    cache = RangeCache(work / "ranges")
    service.replicas.count += 1
    with ImportState(work, f"{record.folder} {namespace}") as state:
        history = PeerHistory(source or FolderSource(record.folder), state, ImportProgress())
        await history.load(record.refs)
        writing = HistoryImport(
            history,
            blocks,
            Committed(blocks, cache, rule=BreakRule(rows_mean=4)),
            namespace,
            clock,
            SeededIds(clock, 1000 + service.replicas.count),
        )
        bringing = Bringing(
            service.graveler,
            lambda: service.admin,
            Transfer(service.graveler, lambda: service.admin),
            writing,
            state,
            name,
            namespace,
            BranchId("main"),
            settings or Settings(),
        )
        try:
            yield bringing, history, state
        finally:
            cache.close()


async def _objects(service: Service, name: str, ref: str, namespace: str) -> list[Any]:
    page = await service.graveler.list_entries(service.admin, name, ref)
    found = []
    for path, packed in zip(page.paths, page.entries, strict=True):
        entry = unpack(packed)
        key = BlockKey(namespace, physical_path(entry.address))
        body = await service.replicas.blocks.read(key)
        about = [path, entry.size, entry.etag, entry.content_type, entry.mtime_us // 1_000_000]
        found.append([*about, dict(entry.metadata), hashlib.sha256(body).hexdigest()])
    return found


async def shown(service: Service, name: str = "shop", namespace: str = NAMESPACE) -> dict[str, Any]:
    """Returns what `peer_history.seen` does."""
    graveler, admin = service.graveler, service.admin
    branches = (await graveler.list_branches(admin, name)).branches
    tags = (await graveler.list_tags(admin, name)).tags
    repository = await graveler.get_repository(admin, name)
    found: dict[str, Any] = {"default": repository.default_branch_id}
    refs = [f"branch {each.branch_id}" for each in branches]
    for ref in [*refs, *(f"tag {each.tag_id}" for each in tags)]:
        place = ref.partition(" ")[2]
        commits = (await graveler.list_commits(admin, name, place)).commits
        ids = {each.commit_id: each.metadata["lakefs.commit_id"] for each in commits}
        log = []
        for each in commits:
            metadata = {
                key.removeprefix("lakefs."): value
                for key, value in each.metadata.items()
                if key != "lakefs.commit_id"
            }
            time = each.author_time if each.HasField("author_time") else each.create_time
            log.append(
                [
                    ids[each.commit_id],
                    "" if each.committer == "lakefs" else each.committer,
                    each.message,
                    time.seconds,
                    metadata,
                    [ids[parent] for parent in each.parent_ids],
                ]
            )
        objects = await _objects(service, name, place, namespace)
        found[ref] = {"log": sorted(log), "objects": objects}
    return found
