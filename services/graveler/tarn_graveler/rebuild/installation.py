"""Rebuilds what belongs to no repository, and then each repository that it names."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import RepositoryId
from tarn.journal.replay import StagedRows
from tarn.journal.source import JournalSource
from tarn.kv.auth_records import decode_credential
from tarn.kv.drop_records import encode_drop
from tarn.kv.keys import AuthKeys, InstallationKeys
from tarn.kv.namespace_records import decode_namespace
from tarn.kv.port import Row
from tarn.kv.record_kinds import KINDS, Place
from tarn.kv.records import BucketView, Repository, decode_bucket
from tarn.snapshot.installation.installation import namespace_at_rest
from tarn.snapshot.installation.looks import Looks
from tarn_graveler.journal.epochs import JournalPlace
from tarn_graveler.rebuild.report import KeyToReissue, RebuildReport, RepositoryReport
from tarn_graveler.rebuild.repository import Rebuilder, RebuiltRepository, unreadable
from tarn_graveler.rebuild.rows import write_rows
from tarn_graveler.rebuild.source import replayed

__all__ = ["RebuiltStore", "rebuild_installation"]

_HOUR_US: Final = 3_600_000_000
_REPOSITORIES: Final = InstallationKeys.repository("")
_NAMESPACES: Final = InstallationKeys.namespace("")
_CREDENTIALS: Final = AuthKeys.credential("")
_USERS: Final = AuthKeys.user("")
_LOST: Final = {Kind.CORRUPT, Kind.NOT_FOUND}


@dataclass(slots=True)
class RebuiltStore:
    """The result of a rebuild, whose rows are in the store of its `Rebuilder`.

    Attributes:
        report: for people.
        places: the journals that go on, each with what was read.
        blocks: by namespace, the files of listings that must be there when the store opens
            (`tarn_graveler.rebuild.listings`).
    """

    report: RebuildReport = field(default_factory=RebuildReport)
    places: list[tuple[JournalPlace, JournalSource]] = field(default_factory=list)
    blocks: dict[str, frozenset[str]] = field(default_factory=dict)


async def rebuild_installation(tools: Rebuilder, journal_namespace: str) -> RebuiltStore:
    """Rebuilds an installation into an empty store.

    Args:
        tools: the stores.
        journal_namespace: where the journal of what belongs to no repository is.

    Raises:
        TarnError: NOT_FOUND: there is no such journal. CORRUPT: its base is damaged. INVALID: a replayed journal is of
            other files, or of none of the repositories. Errors of the stores. What is wrong with single repositories is
            in the report.
    """
    work = _Work(tools, RebuiltStore(), RepositoryReport("", journal_namespace))
    await work.read_shared()
    work.require_all_ready()
    for repository in work.repositories:
        await work.rebuild(repository)
    await work.write()
    return work.result


@dataclass(slots=True)
class _Work:
    """The rebuild of one installation."""

    tools: Rebuilder
    result: RebuiltStore
    shared: RepositoryReport
    graveler: dict[bytes, bytes] = field(default_factory=dict)
    auth: dict[bytes, bytes] = field(default_factory=dict)
    repositories: list[Repository] = field(default_factory=list)
    views: list[BucketView] = field(default_factory=list)
    looks: Looks = field(default_factory=dict)
    newest_us: int = 0

    @property
    def report(self) -> RebuildReport:
        return self.result.report

    async def read_shared(self) -> None:
        """Reads the journal of what belongs to no repository."""
        namespace = self.shared.storage_namespace
        ready = self.tools.ready.get(namespace)
        async with replayed(self.tools.blocks, namespace, None, ready) as found:
            self.shared.epoch = found.source.epoch.number
            self.shared.drained_until_us = found.report.drained_until_us
            self.shared.files, self.shared.events = found.report.files, found.report.events
            self.shared.problems += found.report.lines()
            for each in found.results:
                assert not isinstance(each, StagedRows), "no branch belongs to no repository"
                try:
                    self._add(each.key.encode(), each.payload)
                except TarnError as error:
                    self.shared.problems.append(unreadable(each.key, error))
            place = JournalPlace(self.tools.keys.installation_id, namespace)
            self.result.places.append((place, found.source))
        self.report.shared = self.shared

    def require_all_ready(self) -> None:
        """Does nothing if each replayed journal is one that the installation has.

        Raises:
            TarnError: INVALID: it is not, so it would be left out silently.
        """
        known = {self.shared.storage_namespace}
        known.update(each.storage_namespace for each in self.repositories)
        if unknown := sorted(self.tools.ready.keys() - known):
            text = f"the replayed journal of {unknown[0]} is of no repository of this installation"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)

    def _add(self, key: bytes, value: bytes) -> None:
        place = _place_of(key)
        if place is None:
            self.shared.problems.append(
                f"record {key!r} is of a kind that this release does not know"
            )
        elif key.startswith(_REPOSITORIES):
            self._add_bucket(key, value)
        elif key.startswith(_NAMESPACES):
            self._add_namespace(key, value)
        elif key.startswith(_CREDENTIALS):
            found = decode_credential(value)
            lost = KeyToReissue(found.access_key_id, found.user_id, found.description)
            self.report.keys.append(lost)
        elif key == AuthKeys.setup():
            self.report.left_out.append(
                "that the set-up is over: `tarn auth setup` gives the first admin a new access key"
            )
        elif place is Place.AUTH:
            self.auth[key] = value
            self.report.users += key.startswith(_USERS)
        else:
            self.graveler[key] = value

    def _add_bucket(self, key: bytes, value: bytes) -> None:
        found = decode_bucket(value)
        if isinstance(found, BucketView):
            if not found.is_pending:
                self.graveler[key] = value
                self.views.append(found)
        elif found.is_served:
            self.graveler[key] = value
            self.repositories.append(found)
            self.newest_us = max(self.newest_us, found.create_time_us)
        else:
            what = (
                "deletion had begun" if found.is_deleted else "creation or restore was not finished"
            )
            self.report.left_out.append(f"repository {found.repository_id}: its {what}")

    def _add_namespace(self, key: bytes, value: bytes) -> None:
        key, kept = namespace_at_rest((key, value))
        self.graveler[key] = kept
        if kept != value:
            name = key.removeprefix(_NAMESPACES).decode()
            self.report.left_out.append(
                f"that the data in {name} were to be deleted: repository "
                f"{decode_namespace(value).repository_id} was deleted with its data; they stay"
            )

    async def rebuild(self, repository: Repository) -> None:
        """Rebuilds a repository; one that cannot be is reported, and its name and namespace are free."""
        name, namespace = repository.repository_id, repository.storage_namespace
        keys = self.tools.keys.of_repository(name, repository.instance_uid)
        try:
            done = await self.tools.repository(repository)
        except TarnError as error:
            if error.kind not in _LOST:
                raise
            lost = RepositoryReport(name, namespace, problems=[error.message])
            self.report.lost.append(lost)
            self.graveler.pop(InstallationKeys.repository(name), None)
            self.graveler.pop(InstallationKeys.namespace(namespace), None)
            for partition in (keys.refs, keys.commits, keys.pulls, keys.reflog):
                await self.tools.kv.drop_partition(partition)  # of a temporary store
            return
        self.report.repositories.append(done.report)
        self.result.places.append((JournalPlace(keys.root, namespace), done.source))
        self.result.blocks[namespace] = done.blocks
        self._tell_views(name, done)
        self.looks |= done.looks
        self.newest_us = max(self.newest_us, done.newest_us)

    def _tell_views(self, name: RepositoryId, done: RebuiltRepository) -> None:
        """Tells which bucket views show a lost branch; they stay, and show nothing until there is one again."""
        for view in self.views:
            if view.repository_id == name and view.ref in done.lost_branches:
                text = f"bucket {view.bucket_id} shows branch {view.ref}, which is lost"
                done.report.problems.append(text)

    async def write(self) -> None:
        """Writes what belongs to no repository."""
        keys = self.tools.keys
        await write_rows(self.tools.kv, keys.graveler, list(self.graveler.items()))
        auth = AuthKeys(keys.installation_id).partition
        await write_rows(self.tools.kv, auth, list(self.auth.items()))
        # Times that follow from the records: an attempt after one that died must make the same rows.
        done_before = (keys.DONE_BEFORE, b"%d" % self.newest_us)
        await write_rows(self.tools.kv, keys.cleanup, [done_before])
        hours: dict[int, list[Row]] = {}
        for look in self.looks.values():
            time_us = max(look.drop_time_us, self.newest_us)
            row = (
                keys.drop(time_us, look.partition.name),
                encode_drop(replace(look, drop_time_us=time_us)),
            )
            hours.setdefault(time_us // _HOUR_US, []).append(row)
        for hour, rows in hours.items():
            await write_rows(self.tools.kv, keys.drops(hour), rows)


def _place_of(key: bytes) -> Place | None:
    """The place of a record that belongs to no repository; None: this release does not know the kind."""
    for kind in KINDS:
        if kind.place in {Place.GRAVELER, Place.AUTH} and kind.is_journaled and kind.covers(key):
            return kind.place
    return None
