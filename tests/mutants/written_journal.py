"""Written mutations of the journal: epochs, their takeover, and rebuilds beside a lost store that goes on."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.applying import Written

__all__ = ["JOURNAL"]

JOURNAL: Final[Sequence[Written]] = (
    Written(
        "epoch-number-is-raised",
        "tarn_graveler.journal.epochs",
        "An attempt that is taken over gets a greater number, so a lost store begins an epoch behind a rebuild.",
        "        if record.has_begun or record.number != number + 1:\n",
        "        if record.has_begun:\n",
    ),
    Written(
        "epoch-forgets-its-store",
        "tarn_graveler.journal.epochs",
        "An attempt that is taken over gets other digits, so the late file of the one before is that of another store.",
        "            chance = epoch_store(before.folder) + chance[16:]\n",
        "            pass\n",
    ),
    Written(
        "epoch-of-any-store",
        "tarn_graveler.journal.epochs",
        "A store takes the epoch of another store, of the number of its own attempt, for its own.",
        "    return record.number == epoch.number and is_same_store\n",
        "    return record.number == epoch.number\n",
    ),
    Written(
        "epoch-file-of-any-store",
        "tarn.journal.epochs",
        "A store that finds the file of another one goes on in that epoch.",
        "        if epoch_store(other.folder) != epoch_store(epoch.folder):\n"
        "            raise _taken(namespace, epoch, other) from error\n",
        "",
    ),
    Written(
        "rebuild-takes-a-base-over",
        "tarn_graveler.journal.epochs",
        "A repetition of a rebuild takes over the base of the attempt before, whose tokens have other names.",
        "        if source is None and before is not None and not before.is_note:\n",
        "        if before is not None and not before.is_note:\n",
    ),
    Written(
        "rebuild-behind-any-epoch",
        "tarn_graveler.journal.epochs",
        "A rebuild goes behind an epoch that it has not read.",
        "        epoch = await self._begin(place, row, record, source.newest.number, source.epoch)\n",
        "        newest = await newest_epoch(self._blocks, place.namespace)\n"
        "        number = newest.number if newest is not None else 0\n"
        "        epoch = await self._begin(place, row, record, number, source.epoch)\n",
    ),
    Written(
        "base-without-its-row",
        "tarn_graveler.journal.epochs",
        "A base counts although the row of the store went while it was read.",
        "        _require_attempt(await row.read(settle=True), epoch)\n",
        "",
    ),
    Written(
        "new-store-follows",
        "tarn_graveler.journal.epochs",
        "An empty store in the place of a lost one begins an epoch, which hides all that a rebuild needs.",
        "            if newest is not None:\n                raise _unknown_store(place, newest)\n",
        "",
    ),
    Written(
        "repository-of-a-lost-store-follows",
        "tarn_graveler.journal.epochs",
        "A repository that is made anew in a lost store follows, and hides, the epoch of the store in its place.",
        "            await self.current(shared)\n",
        "",
    ),
    Written(
        "created-repository-notes-no-epoch",
        "tarn_graveler.handlers.repositories",
        "A repository that is created over a namespace with a journal is never drained.",
        "                await self._drain.note_newest(reservation.repository)\n",
        "                pass\n",
    ),
    Written(
        "restored-repository-notes-no-epoch",
        "tarn_graveler.repository.restoring",
        "A repository that is restored over the namespace of a deleted one is never drained.",
        "                await self._drain.note_newest(made.repository)\n",
        "                pass\n",
    ),
    Written(
        "rebuild-begins-its-own-epoch-last",
        "tarn_graveler.rebuild.filling",
        "A repository that is made anew in a lost store follows the epoch of a rebuild that has only begun.",
        "        for place, source in rebuilt.places:\n",
        "        for place, source in reversed(rebuilt.places):\n",
    ),
    Written(
        "pass-forgets-its-epoch",
        "tarn_graveler.journal.draining",
        "A pass that lived through the journal off and on removes events that are in no file which a rebuild reads.",
        "            await self._epochs.require_continued(place, epoch)\n",
        "",
    ),
    Written(
        "filled-store-follows-any-epoch",
        "tarn_graveler.journal.epochs",
        "The first pass of a restored store that is lost already hides the epoch of the one in its place.",
        '            if not record.may_follow_epoch(number, newest.folder if newest is not None else ""):\n'
        "                raise _other_was_newest(place, record, number)\n",
        "",
    ),
    Written(
        "filled-store-follows-any-folder",
        "tarn.kv.journal_records",
        "A filled store follows another epoch of the number that it has noted.",
        '        return self.may_follow and self.number == number and self.folder in ("", folder)\n',
        "        return self.may_follow and self.number == number\n",
    ),
    Written(
        "unread-journal-counts-as-empty",
        "tarn.journal.following",
        "A journal that could not be read as its store was filled is noted as one without an epoch.",
        '            notes[root] = EpochRecord(0, "", is_unknown=True)\n',
        '            notes[root] = EpochRecord(0, "", may_follow=True)\n',
    ),
    Written(
        "off-forgets-the-epoch",
        "tarn_graveler.journal.epochs",
        "A lost store whose journal was off and on follows the epoch of the store in its place.",
        "    await note_epochs(kv, keys, await epoch_rows(kv, keys))\n",
        "    await kv.delete_many(keys.journal_state, [keys.epoch(root) for root in await epoch_rows(kv, keys)])\n",
    ),
    Written(
        "epoch-is-looked-at-once",
        "tarn_graveler.journal.draining",
        "A lost store deletes a block after a rebuild has followed during its pass.",
        "        if (epoch := await self.drain(place, is_full=True)) is not None:\n"
        "            await require_newest(self._blocks, place.namespace, epoch)\n",
        "        await self.drain(place, is_full=True)\n",
    ),
    Written(
        "rebuild-lists-files-once",
        "tarn_graveler.journal.epochs",
        "A rebuild does not notice a file that came while it worked, and names a block that was deleted then.",
        "        await require_unchanged(self._blocks, place.namespace, source)\n",
        "",
    ),
    Written(
        "marked-listings-stay-old",
        "tarn_graveler.rebuild.listings",
        "A sweep of the lost store that looks later deletes a listing that it has marked while the rebuild ran.",
        "            await _put_again(blocks, namespace, sorted(marked))\n",
        "",
    ),
    Written(
        "deletions-in-flight-are-not-waited-for",
        "tarn_graveler.rebuild.listings",
        "A store opens before a sweep that has looked at a listing deletes it.",
        "    while must_wait and (passed := clock.monotonic() - begun) <= seconds:\n",
        "    while must_wait and (passed := clock.monotonic() - begun) < 0:\n",
    ),
    Written(
        "deleted-listings-are-not-missed",
        "tarn_graveler.rebuild.listings",
        "A store opens although a sweep of the lost store has deleted its listing.",
        "        await _require_all(blocks, namespace, sorted(paths))\n",
        "        pass\n",
    ),
    Written(
        "damaged-quarantine-names-nothing",
        "tarn_graveler.rebuild.listings",
        "A quarantine that cannot be read counts as one that names no listing of the rebuild.",
        "            for path in paths:\n                yield path\n",
        "            continue\n",
    ),
    Written(
        "added-repository-skips-its-listings",
        "tarn_graveler.rebuild.adding",
        "A repository is shown whose listing a sweep of the lost store deletes.",
        "    await require_listings(tools.blocks, {place.namespace: rebuilt.blocks}, tools.clock, show)\n",
        "",
    ),
    Written(
        "damaged-repository-counts-as-gone",
        "tarn_graveler.journal.draining",
        "The registrations of a repository whose record cannot be read are finished, and its events are in no file.",
        "        if damaged:\n            self._tell_damaged_repositories(damaged)\n        else:\n",
        "        self._tell_damaged_repositories(damaged)\n        if True:\n",
    ),
    Written(
        "oldest-epoch-is-read",
        "tarn.journal.epochs",
        "The first epoch of a bucket counts instead of the newest one.",
        "        newest = max(newest, epoch_number(info.path) or 0)\n",
        "        newest = newest or epoch_number(info.path) or 0\n",
    ),
    Written(
        "dead-rebuild-is-read",
        "tarn.journal.source",
        "A rebuild after one that died reads the epoch that it has begun, and tells nothing of what was damaged.",
        "_CHAIN_MAX: Final = 1_000\n",
        "_CHAIN_MAX: Final = 0\n",
    ),
    Written(
        "used-rebuild-is-skipped",
        "tarn.journal.source",
        "Behind a rebuild that died, the epoch of one whose store was used is left out.",
        "    for number in range(epoch.number - 1, epoch.parent - 1, -1):\n",
        "    for number in (epoch.parent,):\n",
    ),
    Written(
        "compacted-epoch-counts-as-unused",
        "tarn.journal.source",
        "The epoch of a rebuild is left out if a compaction has replaced all that was drained in it.",
        "    return bool(names or compaction), files_digest(epoch, compaction, names)\n",
        "    return bool(names), files_digest(epoch, compaction, names)\n",
    ),
)
