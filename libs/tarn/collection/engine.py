"""The engine of a collection: it finds candidates and deletes them, under a lease that its caller keeps.

`InProcess` works in this process, in bounded memory. `tarn_spark` has one for large lakes. Both write the same files,
so one may sweep the marks of the other.
"""

from __future__ import annotations

import random
from typing import Protocol

from tarn.collection.deleting import Lease
from tarn.collection.marking import CollectionRun, Lake, mark
from tarn.collection.outcomes import Report
from tarn.collection.progress import CollectionProgress
from tarn.collection.quarantine import Manifest
from tarn.collection.references import Roots
from tarn.collection.sweeping import SweepOptions, sweep

__all__ = ["Engine", "InProcess"]


class Engine(Protocol):
    """Marks and sweeps one repository at a time."""

    async def mark(
        self,
        lake: Lake,
        run: CollectionRun,
        roots: Roots,
        progress: CollectionProgress,
        *,
        dry_run: bool = False,
    ) -> Manifest:
        """See `tarn.collection.marking.mark`."""
        ...

    async def sweep(
        self,
        lake: Lake,
        run: CollectionRun,
        manifest: Manifest,
        roots: Roots,
        lease: Lease,
        progress: CollectionProgress,
        rng: random.Random,
        options: SweepOptions,
    ) -> Report:
        """See `tarn.collection.sweeping.sweep`."""
        ...


class InProcess:
    """The engine without Spark."""

    async def mark(
        self,
        lake: Lake,
        run: CollectionRun,
        roots: Roots,
        progress: CollectionProgress,
        *,
        dry_run: bool = False,
    ) -> Manifest:
        """See `tarn.collection.marking.mark`."""
        return await mark(lake, run, roots, progress, dry_run=dry_run)

    async def sweep(
        self,
        lake: Lake,
        run: CollectionRun,
        manifest: Manifest,
        roots: Roots,
        lease: Lease,
        progress: CollectionProgress,
        rng: random.Random,
        options: SweepOptions,
    ) -> Report:
        """See `tarn.collection.sweeping.sweep`."""
        return await sweep(lake, run, manifest, roots, lease, progress, rng, options)
