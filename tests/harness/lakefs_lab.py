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
from tests.support.clock import SeededIds
from tests.support.peer_tables import message, table, value

from tarn.block.committed import Committed
from tarn.block.port import BlockKey
from tarn.block.rangecache import RangeCache
from tarn.core.entry import unpack
from tarn.core.ids import BranchId, physical_path
from tarn.core.listing.breaks import BreakRule
from tarn.core.rules import Settings
from tarn.lakefs.bringing import Bringing
from tarn.lakefs.history import DumpIds, ImportProgress, PeerHistory
from tarn.lakefs.importing import HistoryImport
from tarn.lakefs.source import FolderSource, Source
from tarn.lakefs.state import ImportState
from tarn.snapshot.repository.transfer import Transfer

__all__ = ["NAMESPACE", "Recorded", "WrittenBucket", "opened", "recorded", "shown"]

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
    expires_missing: bool = False,
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
            expires_missing=expires_missing,
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
            clock,
            SeededIds(clock, 1),
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


@dataclass
class WrittenBucket:
    """A storage namespace of lakeFS that a test writes itself, also as no lakeFS would.

    Attributes:
        folder: of the namespace.
        commits: records of the dump, by their ids.
        branches, tags: commit ids by names.
        generations: of the commits.
    """

    folder: Path
    commits: dict[str, bytes] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)

    def object(self, body: bytes, address: str = "", **more: Any) -> bytes:
        """Writes an object; returns its entry. `more`: `etag`, `size`, `content_type`, `metadata`, `kind`."""
        digest = hashlib.md5(body).hexdigest()
        address = address or f"data/x/{digest}"
        if more.get("kind", 1) == 1 and ".." not in address:
            path = self.folder / address
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
        pairs = more.get("metadata", {}).items()
        return message(
            (1, address),
            (2, message((1, 1_700_000_000))),
            (3, more.get("size", len(body))),
            (4, more.get("etag", digest)),
            *((5, message((1, name), (2, text))) for name, text in pairs),
            (6, more.get("kind", 1)),
            (7, more.get("content_type", "text/plain")),
        )

    def _file(self, rows: list[tuple[bytes, bytes]]) -> str:
        data = table([rows] if rows else [], kind=1)
        name = hashlib.sha256(data).hexdigest()
        (self.folder / "_lakefs").mkdir(parents=True, exist_ok=True)
        (self.folder / "_lakefs" / name).write_bytes(data)
        return name

    def listing(self, records: dict[bytes, bytes], cut: int = 3) -> str:
        """Writes records as a listing whose ranges end as lakeFS's do: depending on the key."""
        ranges, rows = [], []
        for key, record in sorted(records.items()):
            rows.append((key, value(b"i", record)))
            if hashlib.sha256(key).digest()[0] % cut == 0:
                ranges.append(rows)
                rows = []
        ranges += [rows] if rows else []
        about = [
            (
                each[-1][0],
                value(
                    self._file(each).encode(),
                    message((1, each[0][0]), (2, each[-1][0]), (3, 99), (4, len(each))),
                ),
            )
            for each in ranges
        ]
        return self._file(about)

    def commit(self, listing: str, *parents: str, generation: int = 0, **more: Any) -> str:
        """Adds a commit; returns its id. `more`: `committer`, `message`, `time`, `metadata`, `id`."""
        about = (listing, parents, sorted(more), len(self.commits))
        commit_id = str(more.get("id", hashlib.sha256(repr(about).encode()).hexdigest()))
        depths = [self.generations[each] for each in parents if each in self.generations]
        generation = generation or 1 + max(depths, default=0)
        self.generations[commit_id] = generation
        pairs = more.get("metadata", {}).items()
        self.commits[commit_id] = message(
            (1, commit_id),
            (2, more.get("committer", "ann")),
            (3, more.get("message", "m")),
            (4, message((1, more.get("time", 1_700_000_000)))),
            (5, listing),
            *((6, message((1, name), (2, text))) for name, text in pairs),
            *((7, each) for each in parents),
            (9, generation),
        )
        return commit_id

    def recorded(self) -> Recorded:
        """Writes the dump."""

        def refs(named: dict[str, str]) -> str:
            records = {k.encode(): message((1, k), (2, v)) for k, v in named.items()}
            return self.listing(records)

        commits = {commit_id.encode(): record for commit_id, record in self.commits.items()}
        ids = DumpIds(self.listing(commits), refs(self.branches), refs(self.tags))
        return Recorded(self.folder, ids, {})
