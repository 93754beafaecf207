"""Collections of a repository: what each one found and deleted, from the files that it left in the bucket.

No rpc tells it: graveler keeps the last mark and the last sweep only. The files are those of `tarn gc report`, whatever
engine made them. This process decides who may see them, by the caller's grant, because it reads the bucket itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tarn.collection.outcomes import Outcome, read_report
from tarn.collection.quarantine import marked_runs, read_manifest
from tarn.collection.run_summary import candidates_of
from tarn.core.access.actions import Action, repository_resource
from tarn_api.context import Context
from tarn_api.web import links
from tarn_api.web.page import Crumb, Page, render
from tarn_api.web.place import RepositoryAt, way_to

__all__ = ["show"]

_RUNS_MAX: Final = 30
_SECONDS_MAX: Final = 5.0
"""After which no further run is read: each needs two reads of the bucket."""
_BAR: Final = 200
"""Length of the longest bar, in pixels."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A mark, and the end of its sweep.

    Attributes:
        run_id: of the mark.
        marked_us: when it ended, in Unix microseconds.
        found_count, found_bytes: blocks in quarantine.
        is_swept: whether a sweep has ended.
        deleted_count, deleted_bytes: blocks that it deleted.
        missing_count: blocks in use that were missing afterwards: each is a defect.
    """

    run_id: str
    marked_us: int
    found_count: int
    found_bytes: int
    is_swept: bool
    deleted_count: int
    deleted_bytes: int
    missing_count: int


async def show(context: Context, at: RepositoryAt) -> Page:
    """The last collections, the newest one first, with a bar for the bytes that each one deleted."""
    context.require(Action.MANAGE_COLLECTION, repository_resource(at.repository))
    found = await context.graveler.get_repository(context.read(), at.repository)
    runs, left = await _runs(context, found.storage_namespace)
    most = max((each.deleted_bytes for each in runs), default=0) or 1
    return render(
        context,
        "collections.html",
        title="Collections",
        crumbs=[
            *way_to(at.repository),
            Crumb("State", links.to_repository(at.repository, "state")),
            Crumb("Collections"),
        ],
        repository=at.repository,
        rows=[(each, _BAR * each.deleted_bytes // most) for each in runs],
        width=_BAR,
        left=left,
    )


async def _runs(context: Context, namespace: str) -> tuple[list[_Run], int]:
    """Returns the last runs whose files are there, and the number of those that were not read."""
    blocks, clock = context.blocks, context.backend.clock
    end = clock.monotonic() + _SECONDS_MAX
    ids = (await marked_runs(blocks, namespace))[::-1]
    runs: list[_Run] = []
    read = 0
    for run_id in ids[:_RUNS_MAX]:
        if clock.monotonic() >= end:
            break
        read += 1
        manifest = await read_manifest(blocks, namespace, run_id)
        if manifest is None:
            continue  # it was removed meanwhile
        report = await read_report(blocks, namespace, run_id)
        candidates = candidates_of(manifest)
        deleted = None if report is None else report.total(Outcome.DELETED)
        runs.append(
            _Run(
                run_id,
                manifest.marked_us,
                candidates.count,
                candidates.size_bytes,
                report is not None,
                0 if deleted is None else deleted.count,
                0 if deleted is None else deleted.size_bytes,
                0 if report is None else len(report.missing),
            )
        )
    return runs, len(ids) - read
