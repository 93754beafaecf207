"""Saves a whole installation: users, repositories, and their shared records.

Not in a backup, because it belongs to the running installation or can be made again: the fence and the settings of the
store, the key of page tokens, tasks, the journal of reads, and the list of partitions to drop. The list must not be
copied: it was read at another time than the branches, and could name a token that a saved branch still needs. Only its
looks are kept (`looks.py`); they drop nothing. `tarn.snapshot.records` states the order of all records.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.auth_records import decode_credential
from tarn.kv.fence import fence_partition
from tarn.kv.keys import AuthKeys, InstallationKeys, after_prefix
from tarn.kv.namespace_records import decode_namespace, encode_namespace
from tarn.kv.paging import rows_of
from tarn.kv.port import ListingKv, Row
from tarn.kv.records import BucketView, Repository, decode_bucket
from tarn.snapshot.files.manifest import SavedRepository
from tarn.snapshot.files.writing import KvWriter, Lines
from tarn.snapshot.installation.looks import Looks, save_checkpoint, save_looks
from tarn.snapshot.installation.repository import save_repository

__all__ = [
    "SavedInstallation",
    "namespace_at_rest",
    "save_installation",
    "served_repositories",
]

_PAGE: Final = 1000
_REPOSITORIES: Final = InstallationKeys.repository("")
_NAMESPACES: Final = InstallationKeys.namespace("")
_OF_REPOSITORY: Final = re.compile(
    r"[^/]+-[0-9a-f]+(/(commits|changed|reflog|pulls|tasks/\d+|uploads/\d+|.+:[^:/]+))?", re.DOTALL
)
"""Names of a repository's partitions, without the installation."""


@dataclass(slots=True)
class SavedInstallation:
    """The saved data.

    Attributes:
        lines: the index.
        repositories: by name.
        encryption_key_ids: ids of the keys of users' secrets.
    """

    lines: Lines = field(default_factory=list)
    repositories: list[SavedRepository] = field(default_factory=list)
    encryption_key_ids: tuple[str, ...] = ()


async def save_installation(
    writer: KvWriter, kv: ListingKv, installation_id: str, now_us: int
) -> SavedInstallation:
    """Saves everything that was acknowledged before the call, and perhaps later changes.

    Args:
        writer: reads the store and writes the rows.
        kv: the store, to list its partitions.
        installation_id: the installation.
        now_us: the time, microseconds since the epoch.

    Raises:
        TarnError: UNIMPLEMENTED: there are partitions of a kind that this version does not know. UNAVAILABLE: a branch
            changes faster than it can be read. CORRUPT. Also the errors of the store and of the target.
    """
    keys, saved = InstallationKeys(installation_id), SavedInstallation()
    await _require_known(kv, keys)
    lines, checkpoint_us = await save_checkpoint(writer, keys, now_us)
    saved.lines += lines
    auth = AuthKeys(installation_id)
    saved.lines += await _save_users(writer, auth)
    (secrets,) = await kv.get_many(auth.partition, [auth.secrets()])
    if secrets is not None:
        saved.encryption_key_ids = tuple(secrets.value.decode("ascii", "replace").split())
    names = await served_repositories(kv, keys)
    progress = writer.progress
    progress.units_total = len(names)
    shared: list[Row] = []
    looks: Looks = {}
    for name in names:
        progress.phase = name
        rows = await save_repository(writer, keys, name)
        if rows is not None:
            shared.append(rows.row)
            looks |= rows.looks
            saved.lines += rows.lines
            saved.repositories.append(rows.about)
        progress.units += 1
    # A name that a view took meanwhile is saved as the repository that it was.
    taken = {key for key, _ in shared}
    shared += [row for row in await _namespaces(kv, keys) if row[0] not in taken]
    saved.lines += await writer.save(keys.graveler, shared)
    saved.lines += await save_looks(writer, kv, keys, looks, checkpoint_us)
    return saved


async def _save_users(writer: KvWriter, auth: AuthKeys) -> Lines:
    """Saves users and credentials, without sessions of any kind. The index of credentials by owner is made from the
    saved credentials: if it was copied, a credential that is deleted meanwhile could be saved without it, and no
    listing would show the key.
    """
    owned: list[Row] = []

    def note(key: bytes, value: bytes) -> bool:
        if key.startswith(auth.credential("")):
            found = decode_credential(value)
            owned.append((auth.owned(found.user_uid, found.access_key_id), auth.OWNED_VALUE))
        return True

    start, end = auth.OWNED, after_prefix(auth.OWNED)
    lines = await writer.copy(auth.partition, b"", start, keep=note)
    lines += await writer.save(auth.partition, owned, start, end)
    return lines + await writer.copy(auth.partition, end, None, keep=_outlives_a_backup)


def _outlives_a_backup(key: bytes, value: bytes) -> bool:  # noqa: ARG001 - `copy` passes both
    """Session keys and sessions of browsers live for hours; one that was ended must not come back with a restore."""
    short = (
        AuthKeys.session(""),
        AuthKeys.SESSION_ENDS,
        AuthKeys.WEB_SESSIONS,
        AuthKeys.WEB_SESSION_ENDS,
    )
    return not key.startswith(short)


async def served_repositories(kv: ListingKv, keys: InstallationKeys) -> list[str]:
    """The names of the repositories in use, in order."""
    return [
        record.repository_id
        async for _, value in rows_of(
            kv, keys.graveler, _REPOSITORIES, after_prefix(_REPOSITORIES), _PAGE
        )
        if isinstance(record := decode_bucket(value), Repository) and record.is_served
    ]


async def _require_known(kv: ListingKv, keys: InstallationKeys) -> None:
    """Refuses partitions that nothing here would save.

    Raises:
        TarnError: UNIMPLEMENTED.
    """
    prefix = f"{keys.installation_id}/"
    shared = {
        each.name
        for each in (
            keys.graveler,
            keys.cleanup,
            keys.reads,
            keys.journal_state,
            AuthKeys(keys.installation_id).partition,
            fence_partition(keys.installation_id),
        )
    }
    async for listed in kv.partitions(prefix):
        # Registrations of the journal are left out: a store that is filled begins epochs with all that it holds.
        is_hour = any(
            listed.name.removeprefix(f"{each.name}/").isdigit()
            for each in (keys.cleanup, keys.journal_state)
        )
        of_repository = _OF_REPOSITORY.fullmatch(listed.name.removeprefix(prefix))
        if not is_hour and listed.name not in shared and not of_repository:
            text = (
                f"partition {listed.name!r} is of a kind that this version of Tarn does not know, so a backup would "
                "lack it; use the `tarn` of the version that runs the installation"
            )
            raise TarnError(Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED, text)


async def _namespaces(kv: ListingKv, keys: InstallationKeys) -> list[Row]:
    """The namespaces that are taken now, bucket views, and rows that this version does not know.

    Read last: the namespace of a repository that is newer than its part of the backup holds data, too. A view may show
    a repository that the backup lacks, as one may whose repository was deleted.
    """
    rows = [
        row async for row in rows_of(kv, keys.graveler, b"", None, _PAGE) if row[0] != keys.PAGE_KEY
    ]
    return [
        namespace_at_rest(row)
        for row in rows
        if not row[0].startswith(_REPOSITORIES) or _is_view(row)
    ]


def _is_view(row: Row) -> bool:
    """Whether a row is that of a bucket view; one that is being created may still fail."""
    found = decode_bucket(row[1])
    return isinstance(found, BucketView) and not found.is_pending


def namespace_at_rest(row: Row) -> Row:
    """Returns the row of a namespace without its doom, unless the deletion of its data has begun.

    The repository may be brought back after the backup. Its data must not be deleted after a restore.
    """
    key, value = row
    if not key.startswith(_NAMESPACES):
        return row
    held = decode_namespace(value)
    if not held.doom_time_us or held.purge_begin_us:
        return row
    return key, encode_namespace(replace(held, doom_time_us=0, purge_after_us=0))
