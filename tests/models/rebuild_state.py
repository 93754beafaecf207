"""The state of the model of rebuilds (see `rebuild_model`): stores, the bucket, and the rules that a rebuild follows.

A store holds one key. Its contents are the tuple of all writes that it has had, oldest first; the last one counts. The
write `RELEASE` is a person's release of the collections, which is an event as any other.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "ANY",
    "NOBODY",
    "REBUILD_GUARDS",
    "RELEASE",
    "Contents",
    "Epoch",
    "EpochRow",
    "LakeState",
    "RebuildRules",
    "Store",
    "listing_of",
    "value_of",
]

RELEASE = 0
NOBODY = -1
"""The store before the first one of the model."""
ANY = -1
"""As an epoch to follow: any."""

Contents = tuple[int, ...]

REBUILD_GUARDS = {
    # Which epochs begin.
    "written once": "the file of an epoch is written only if there is none of its number",
    "one number": "all attempts of a store to begin an epoch have one number, the next one after that which it follows",
    "store's half": "a store knows an epoch as its own by the half of the folder's name that its attempts share",
    "new store": "a store without a row of its epoch begins none where the bucket has one",
    "new repository": "neither does one in which a repository was made anew, for the journal of that repository",
    "made anew": "a repository that is made anew follows the epoch that was the newest then, and no later one",
    "store counts": "but only if the journal of what belongs to no repository is its store's, after that look",
    "shared first": "a rebuild begins the epoch of what belongs to no repository before those of repositories",
    "follows one": "a store that was filled follows the epoch that was the newest then, and no later one",
    "off keeps it": "so does one whose journal was off, that of the epoch that it had then",
    # What a rebuild reads.
    "newest alone": "a rebuild reads the files of one epoch, and of no other",
    "empty epoch": "it reads no epoch that a rebuild began and in which nothing was drained, but the one before",
    "number before": "the one before is that of the number before, not the one of which the store was rebuilt",
    # A forgotten process of a lost store.
    "look again": "blocks are deleted only if the epoch is the newest after the file of the pass, too",
    "remembered last": "a pass saves the next deletion its own only if this look found the epoch the newest",
    "row again": "after its file a pass looks whether the store still continues its epoch; else nothing goes",
    "file before": "blocks are deleted only if what ended their references is in a file",
    "list again": "a rebuild lists the files again after it has begun its epoch, and opens only if there are no others",
    "newest's files": "these are the files of the epoch that was the newest as it began, also if it read another one",
    "listings again": "then it writes those of its listings again that a sweep has marked, which makes them young",
    "listings wait": "and waits until no deletion that looked before can be under way, and opens only if all are there",
    "opens last": "the rebuilt store opens after its epoch has begun",
    # The rebuilt store.
    "held": "the collections of a rebuilt store are held until a person releases them",
    "release is an event": "the release is an event: it is drained before the first deletion",
}


class EpochRow(NamedTuple):
    """The row of a store's epoch.

    Attributes:
        number: of the attempt, or the epoch.
        attempt: the half of the folder's name that each attempt has anew; the other half is the store's.
        has_begun: whether its file is in the bucket.
        follows: the number of the epoch that was the newest when the store was filled, or its journal was switched off;
            `ANY`: nobody knows; None: there is an attempt.
    """

    number: int = 0
    attempt: int = 0
    has_begun: bool = False
    follows: int | None = None


class Store(NamedTuple):
    """A KV.

    Attributes:
        contents: its writes.
        row: of its epoch.
        is_open: whether it answers.
        is_held: whether its collections are held.
        listing: that it was rebuilt with; 0: none.
        restored_at: number of the epoch that was the newest when a person filled it with a backup, or made its
            repository anew, so that what that one had is not missed; None: nobody did.
        removed: writes whose events are gone, because they are in a file.
    """

    contents: Contents = ()
    row: EpochRow | None = None
    is_open: bool = True
    is_held: bool = False
    listing: int = 0
    restored_at: int | None = None
    removed: frozenset[int] = frozenset()


class Epoch(NamedTuple):
    """An epoch that has begun.

    Attributes:
        number: its number.
        store: whose it is.
        attempt: see `EpochRow`.
        parent: of a rebuild: the epoch that was read; 0: no rebuild began it.
        base: what the store then held.
        files: events in files: place in the store's contents, and write.
    """

    number: int
    store: int
    attempt: int = 0
    parent: int = 0
    base: Contents = ()
    files: frozenset[tuple[int, int]] = frozenset()

    @property
    def contents(self) -> Contents:
        return (*self.base, *(write for _, write in sorted(self.files)))


class LakeState(NamedTuple):
    """The stores and the bucket.

    Attributes:
        stores: in the order in which they were filled.
        epochs: by number.
        written: blocks: all writes, and below 0 listings.
        deleted: those that were deleted.
        young: listings that were written again since a sweep has marked them.
        marked: listings that a sweep has marked: its quarantine, in the bucket, names them.
        sent: listings that a sweep has found old, and is about to delete. It does so within seconds, or not at all
            (`tarn.collection.deleting`).
        shown: contents that some store had.
        due: acknowledged writes that came into a file while its epoch was the newest.
        lost: stores in whose place a rebuilt one has opened.
        shared: the store that has begun the newest epoch of what belongs to no repository; `NOBODY`: not played.
        broken: a promise that the last step broke.
    """

    stores: tuple[Store, ...]
    epochs: tuple[Epoch, ...]
    written: frozenset[int] = frozenset()
    deleted: frozenset[int] = frozenset()
    young: frozenset[int] = frozenset()
    marked: frozenset[int] = frozenset()
    sent: frozenset[int] = frozenset()
    shown: frozenset[Contents] = frozenset()
    due: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()
    shared: int = NOBODY
    broken: str | None = None

    @property
    def newest(self) -> Epoch:
        return self.epochs[-1]

    def epoch(self, number: int) -> Epoch | None:
        return next((each for each in self.epochs if each.number == number), None)

    def with_store(self, at: int, store: Store) -> LakeState:
        """Changes a store; `at` may be the number of stores, for a new one."""
        return self._replace(stores=(*self.stores[:at], store, *self.stores[at + 1 :]))

    def with_epoch(self, epoch: Epoch) -> LakeState:
        """Writes an epoch over the one of its number."""
        others = [each for each in self.epochs if each.number != epoch.number]
        return self._replace(epochs=tuple(sorted((*others, epoch))))

    def writes(self, at: int, write: int, *, is_held: bool) -> LakeState:
        """Appends an acknowledged write to a store."""
        store = self.stores[at]
        contents = (*store.contents, write)
        after = self.with_store(at, store._replace(contents=contents, is_held=is_held))
        return after._replace(written=self.written | {write}, shown=self.shown | {contents})


class RebuildRules:
    """The guards that are on, and what they say of a bucket."""

    def __init__(self, off: frozenset[str]) -> None:
        assert off <= set(REBUILD_GUARDS), f"no such guard: {off - set(REBUILD_GUARDS)}"
        self._off = off

    def has(self, guard: str) -> bool:
        return guard not in self._off

    def before(self, epoch: Epoch) -> int | None:
        """The number of the epoch that is read in the place of this one; None: this one is read."""
        if not epoch.parent or epoch.files or not self.has("empty epoch"):
            return None
        return epoch.number - 1 if self.has("number before") else epoch.parent

    def source(self, lake: LakeState) -> Contents:
        """What a rebuild reads if it looks at one moment only."""
        epoch = lake.newest
        while (number := self.before(epoch)) is not None and (found := lake.epoch(number)):
            epoch = found
        return self.read(lake, epoch.number)

    def read(self, lake: LakeState, number: int) -> Contents:
        """What the files of an epoch say."""
        epoch = lake.epoch(number)
        assert epoch is not None
        if not self.has("newest alone"):
            events = frozenset[tuple[int, int]]().union(*(each.files for each in lake.epochs))
            epoch = epoch._replace(files=events)
        return epoch.contents

    def broken(self, lake: LakeState) -> str | None:
        """The promise that a state breaks."""
        if lake.broken is not None:
            return lake.broken
        numbers = [each.number for each in lake.epochs]
        if numbers != list(range(1, len(numbers) + 1)):
            return f"chain: the epochs are {numbers}"
        contents = self.source(lake)
        if contents not in lake.shown:
            return f"invented: no store ever had {contents}"
        if gone := lake.due.difference(contents):
            return f"lost: {sorted(gone)} was in a file of the newest epoch, and {contents} would be rebuilt"
        newest = lake.newest
        removed = lake.stores[newest.store].removed if newest.store != NOBODY else frozenset[int]()
        if gone := removed.difference(newest.contents):
            return f"lost: the event of {sorted(gone)} is removed, and epoch {newest.number} does not have it"
        if value_of(contents) in lake.deleted:
            return f"dangling: the block of {value_of(contents)} is deleted, and would be named by a rebuild"
        for at, store in enumerate(lake.stores):
            named = {value_of(store.contents), store.listing}
            if store.is_open and at not in lake.lost and not named.isdisjoint(lake.deleted):
                return f"dangling: store {at} names {named & lake.deleted}, which is deleted"
        return None


def value_of(contents: Contents) -> int | None:
    """The value of the key."""
    return next((write for write in reversed(contents) if write != RELEASE), None)


def listing_of(contents: Contents) -> int:
    """The name of a listing with the key."""
    return -(value_of(contents) or 0)
