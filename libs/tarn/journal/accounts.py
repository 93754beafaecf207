"""What the files of an epoch say of what is missing: nothing is left out of a rebuild silently.

Three things show a loss. Holders number their files without gaps. Each pass says how many rows of each token, and of
records, its holder has written so far. And each pass has the order of each branch's newest record.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from tarn.core.moments import iso_seconds
from tarn.journal.footer import BranchFooter, Footer
from tarn.journal.names import PassName

__all__ = [
    "Accounts",
    "BranchAccount",
    "CountAccount",
    "KeptAccounts",
    "LostEvents",
    "MissingFiles",
    "OverToken",
    "Report",
]


@dataclass(frozen=True, slots=True, order=True)
class MissingFiles:
    """Files of a holder that are not in the bucket, or cannot be read: the numbers from `first` to `last`."""

    holder: str
    first: int
    last: int


@dataclass(frozen=True, slots=True, order=True)
class LostEvents:
    """Events that a holder has written and that no readable file has, with repetitions.

    Attributes:
        holder: 32 hex digits.
        branch: empty: events of records.
        token: empty: likewise.
        count: how many.
    """

    holder: str
    branch: str
    token: str
    count: int


@dataclass(frozen=True, slots=True)
class BranchAccount:
    """A branch in the files.

    Attributes:
        drained_until_us: when its last pass began: what was acknowledged before is in the files. 0: it had none.
        seen_order: greatest order of a record that a pass saw.
        found_order: greatest order of a record that is in the files; less than `seen_order`: that record is lost, and
            an older one is rebuilt. -1: none is.
        is_unsettled: its last pass met changes of the record to its end.
        damaged_us: when the newest pass began that could not read its record or an event; 0: none. Such a pass does not
            count for `drained_until_us`.
        damage: why it could not.
    """

    drained_until_us: int = 0
    seen_order: int = 0
    found_order: int = -1
    is_unsettled: bool = False
    damaged_us: int = 0
    damage: str = ""

    @property
    def is_damaged(self) -> bool:
        """Whether no later pass could read it."""
        return 0 < self.damaged_us >= self.drained_until_us

    @property
    def is_stale(self) -> bool:
        """Whether a newer record was seen than the newest one that is there."""
        return self.seen_order > max(0, self.found_order)


@dataclass(frozen=True, slots=True)
class Report:
    """What was read of an epoch, and what was not.

    Attributes:
        epoch: number of the epoch.
        files: files of passes that count.
        events: rows in them and in the base.
        drained_until_us: when the last pass over the whole repository began, or the epoch if there was none.
        branches: by name.
        missing: gaps in the numbers of files; damaged files are in gaps.
        damaged: paths of files that cannot be read, and why.
        unfinished: paths of parts whose pass never ended: their events are still in the store, or in another file.
        lost: what holders have written and the files do not have.
    """

    epoch: int
    files: int
    events: int
    drained_until_us: int
    branches: Mapping[str, BranchAccount]
    missing: tuple[MissingFiles, ...]
    damaged: tuple[tuple[str, str], ...]
    unfinished: tuple[str, ...]
    lost: tuple[LostEvents, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all that was drained is there, as far as the files can tell."""
        stale = any(
            each.is_stale or each.is_unsettled or each.is_damaged for each in self.branches.values()
        )
        return not (self.missing or self.damaged or self.lost or stale)

    def lag_us(self, lost_us: int) -> int:
        """Returns how old the newest drained change may be, if the store was lost at a time; microseconds."""
        return max(0, lost_us - self.drained_until_us)

    def lines(self) -> Iterator[str]:
        """Yields what is missing, in words; nothing if all is there."""
        for each in self.missing:
            yield f"files {each.first} to {each.last} of holder {each.holder} are missing"
        for path, why in self.damaged:
            yield f"{path} cannot be read: {why}"
        for path in self.unfinished:
            yield f"{path} belongs to a pass that never ended, and was left out"
        for lost in self.lost:
            of = f"token {lost.token} of branch {lost.branch}" if lost.token else "records"
            yield f"{lost.count} events of {of}, written by holder {lost.holder}, are missing"
        for name, branch in sorted(self.branches.items()):
            if branch.is_stale:
                yield (
                    f"branch {name} has an older record than its newest one: order {branch.found_order} instead of "
                    f"{branch.seen_order}"
                )
            if branch.is_unsettled:
                yield f"the last pass over branch {name} met changes to its end: it may show a row that was replaced"
            if branch.is_damaged:
                since = (
                    iso_seconds(branch.drained_until_us) if branch.drained_until_us else "its begin"
                )
                yield (
                    f"branch {name} was damaged in the store ({branch.damage}): changes of it after {since} may be "
                    "missing, its last commits and uncommitted objects"
                )


class CountAccount(msgspec.Struct, frozen=True, array_like=True):
    """Events of a token in all files of a holder, with repetitions.

    Attributes:
        holder: 32 hex digits.
        branch: empty: events of records.
        token: empty: likewise.
        written: by the holder, as it says.
        found: in files that count.
    """

    holder: str
    branch: str
    token: str
    written: int
    found: int


class OverToken(msgspec.Struct, frozen=True, array_like=True):
    """A token that had its last scan.

    Attributes:
        branch: its branch.
        token: its id.
        since_us: when the last pass began that scanned it; microseconds since the epoch of Unix.
    """

    branch: str
    token: str
    since_us: int


class KeptAccounts(msgspec.Struct, frozen=True):
    """What files say of what is missing, kept by a compaction that replaces them: what they hid stays known.

    Attributes:
        drained_until_us: as in `Report`.
        numbers: of the files of each holder that were read: pairs of the first and the last, ascending.
        counts: sorted. Tokens whose rows were left out have none.
        branches: by name: when the last pass began, the greatest order of a record, whether that pass met changes to
            its end. As in `BranchAccount`.
        damages: by name of a damaged branch: when the newest pass began that could not read it, and why.
        over: tokens that had their last scan, and whose rows are still there; sorted.
    """

    drained_until_us: int = 0
    numbers: dict[str, tuple[tuple[int, int], ...]] = {}
    counts: tuple[CountAccount, ...] = ()
    branches: dict[str, tuple[int, int, bool]] = {}
    over: tuple[OverToken, ...] = ()
    damages: dict[str, tuple[int, str]] = {}

    def holds(self, name: PassName) -> bool:
        """Whether a file was read."""
        return any(
            first <= name.number <= last for first, last in self.numbers.get(name.holder, ())
        )


class Accounts:
    """Collects what the files of one epoch say. The order of the calls does not matter."""

    def __init__(self, epoch: int, begin_time_us: int) -> None:
        self._epoch = epoch
        self._until_us = begin_time_us
        self._events = 0
        self._files = 0
        self._numbers: defaultdict[str, set[int]] = defaultdict(set)
        self._open: defaultdict[str, set[int]] = defaultdict(set)
        self._over: dict[tuple[str, str], int] = {}
        self._replaced: dict[str, tuple[tuple[int, int], ...]] = {}
        self._ends: Counter[str] = Counter()
        self._written: Counter[tuple[str, str, str]] = Counter()
        self._found: Counter[tuple[str, str, str]] = Counter()
        self._branches: dict[str, BranchAccount] = {}
        self._found_orders: dict[str, int] = {}
        self._damaged: dict[str, str] = {}
        self._unfinished: list[str] = []

    def add_rows(self, holder: str, rows: Mapping[tuple[str, str], int]) -> None:
        """Counts rows that were read.

        Args:
            holder: of the file; empty: of the base.
            rows: number of rows by branch and token.
        """
        for (branch, token), count in rows.items():
            self._events += count
            self._found[holder, branch if token else "", token] += count

    def add_record(self, branch: str, order: int) -> None:
        """Notes the event of a branch's record."""
        self._found_orders[branch] = max(order, self._found_orders.get(branch, -1))

    def add_part(self, name: PassName) -> None:
        """Notes a file of a pass that counts, and that another file describes."""
        self._numbers[name.holder].add(name.number)
        self._files += 1

    def add_pass(self, name: PassName, footer: Footer) -> None:
        """Notes the file that ends a pass."""
        self.add_part(name)
        self._until_us = max(self._until_us, footer.until_us)
        self._raise(name.holder, "", "", footer.drained_records)
        for each in footer.branches:
            for token in each.tokens:
                self._raise(name.holder, each.branch, token.token_id, token.drained)
                if token.is_over:
                    place = (each.branch, token.token_id)
                    self._over[place] = max(footer.begin_time_us, self._over.get(place, 0))
            self._add_branch(footer.begin_time_us, each)

    def _add_branch(self, begin_us: int, told: BranchFooter) -> None:
        known = self._branches.get(told.branch, BranchAccount())
        known = replace(known, seen_order=max(known.seen_order, told.order))
        if told.damage is not msgspec.UNSET:
            if begin_us >= known.damaged_us:
                known = replace(known, damaged_us=begin_us, damage=told.damage)
        elif begin_us >= known.drained_until_us:
            known = replace(known, drained_until_us=begin_us, is_unsettled=told.is_unsettled)
        self._branches[told.branch] = known

    def _raise(self, holder: str, branch: str, token: str, count: int) -> None:
        key = (holder, branch, token)
        self._written[key] = max(self._written[key], count)

    def add_unfinished(self, name: PassName, path: str) -> None:
        """Notes a part whose pass did not end."""
        self._numbers[name.holder].add(name.number)
        self._open[name.holder].add(name.number)
        self._unfinished.append(path)

    def add_damaged(self, name: PassName | None, path: str, why: str) -> None:
        """Notes a file that cannot be read; without a name, it is the manifest of a day."""
        if name is not None:
            self._ends[name.holder] = max(self._ends[name.holder], name.number)
        self._damaged[path] = why

    def add_expected(self, holder: str, number: int) -> None:
        """Notes that a manifest names a file."""
        self._ends[holder] = max(self._ends[holder], number)

    def resume(self, kept: KeptAccounts) -> None:
        """Goes on with the accounts of files that a compaction replaced; call it first."""
        self._until_us = max(self._until_us, kept.drained_until_us)
        for holder, pairs in kept.numbers.items():
            self._replaced[holder] = pairs
        for each in kept.counts:
            key = (each.holder, each.branch, each.token)
            self._written[key], self._found[key] = each.written, each.found
        for name, (until_us, order, is_unsettled) in kept.branches.items():
            damaged_us, damage = kept.damages.get(name, (0, ""))
            self._branches[name] = BranchAccount(
                until_us, order, is_unsettled=is_unsettled, damaged_us=damaged_us, damage=damage
            )
        self._over = {(each.branch, each.token): each.since_us for each in kept.over}

    def kept(self, without: Collection[tuple[str, str]]) -> KeptAccounts:
        """Returns what must stay known when the files that count are replaced.

        Args:
            without: pairs of branch and token whose rows are left out from now on.
        """
        counts = (
            CountAccount(*key, count, self._found[key])
            for key, count in sorted(self._written.items())
            if key[1:] not in without
        )
        branches = {
            name: (each.drained_until_us, each.seen_order, each.is_unsettled)
            for name, each in sorted(self._branches.items())
        }
        numbers = {
            holder: pairs
            for holder in sorted(self._numbers.keys() | self._replaced.keys())
            if (pairs := self._pairs(holder, self._open[holder]))
        }
        over = tuple(each for each in self.over() if (each.branch, each.token) not in without)
        damages = {
            name: (each.damaged_us, each.damage)
            for name, each in sorted(self._branches.items())
            if each.is_damaged
        }
        return KeptAccounts(self._until_us, numbers, tuple(counts), branches, over, damages)

    def over(self) -> list[OverToken]:
        """Returns the tokens that had their last scan, sorted."""
        return [OverToken(*place, since_us) for place, since_us in sorted(self._over.items())]

    def report(self) -> Report:
        """Returns what is known."""
        names = self._branches.keys() | self._found_orders.keys()
        branches = {name: self._branch(name) for name in sorted(names)}
        lost = tuple(
            LostEvents(*key, count - self._found[key])
            for key, count in sorted(self._written.items())
            if count > self._found[key]
        )
        return Report(
            self._epoch,
            self._files,
            self._events,
            self._until_us,
            branches,
            tuple(self._gaps()),
            tuple(sorted(self._damaged.items())),
            tuple(sorted(self._unfinished)),
            lost,
        )

    def _branch(self, name: str) -> BranchAccount:
        known = self._branches.get(name, BranchAccount())
        return replace(known, found_order=self._found_orders.get(name, -1))

    def _gaps(self) -> Iterator[MissingFiles]:
        for holder in sorted(self._numbers.keys() | self._ends.keys() | self._replaced.keys()):
            before, end = 0, self._ends[holder] + 1
            for first, last in (*self._pairs(holder), (end, end)):
                if first > before + 1:
                    yield MissingFiles(holder, before + 1, first - 1)
                before = max(before, last)

    def _pairs(self, holder: str, without: Collection[int] = ()) -> tuple[tuple[int, int], ...]:
        """Returns the numbers of the files of a holder that were read: first and last of each range, ascending."""
        read = ((number, number) for number in self._numbers[holder] if number not in without)
        found: list[tuple[int, int]] = []
        for first, last in sorted((*self._replaced.get(holder, ()), *read)):
            if found and first <= found[-1][1] + 1:
                found[-1] = (found[-1][0], max(last, found[-1][1]))
            else:
                found.append((first, last))
        return tuple(found)
