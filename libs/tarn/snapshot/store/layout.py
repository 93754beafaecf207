"""The partitions of an installation, with everything that is needed to create them on another store.

The store's own listing provides the names, so nothing is forgotten, not even partitions that no record refers
to any more. On Cassandra the listing has everything: there the number of buckets is part of a partition's identity.
The embedded store does not split partitions and does not record that number. So it is taken from the places that
declare it: the layout of the keys, the branch records (which name their staging tokens), the days of uploads, and the
list of partitions to drop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from tarn.core.ids import BranchId
from tarn.kv.drop_records import decode_drop
from tarn.kv.fence import fence_partition
from tarn.kv.keys import AuthKeys, InstallationKeys, RepositoryKeys, after_prefix, key_error
from tarn.kv.limits import kinds_mixed_error
from tarn.kv.paging import rows_of
from tarn.kv.port import Kv, ListingKv, Partition, PartitionInfo, Row
from tarn.kv.records import BucketView, decode_branch, decode_bucket

__all__ = ["Inventory", "is_empty", "take_inventory"]

_PAGE = 1_000
_REPOSITORIES = InstallationKeys.repository("")
_BRANCHES = b"branches/"


@dataclass(frozen=True, slots=True)
class Inventory:
    """All partitions of an installation on one store.

    Attributes:
        partitions: by name, in order of names.
        strays: names of partitions that no record refers to, because they were given up and are not
            dropped yet. A transfer copies them too.
    """

    partitions: dict[str, Partition]
    strays: tuple[str, ...]


async def take_inventory(kv: ListingKv, installation_id: str) -> Inventory:
    """Lists all partitions but those that belong to the store: the fence with the settings, and the epochs and the
    registrations of journals.

    A store that is filled with rows of another one begins epochs of its own, with all that it holds
    (docs/design/journal.md).

    Raises:
        TarnError: CORRUPT: a record cannot be read, or rows belong to no partition. INVALID: a partition has
            another kind than its record says. Also the store's errors.
    """
    journal = InstallationKeys(installation_id).journal_state.name
    own = {fence_partition(installation_id).name, journal}
    found = kv.partitions(f"{installation_id}/")
    listed = {
        each.name: each
        async for each in found
        if each.name not in own and not each.name.removeprefix(f"{journal}/").isdigit()
    }
    declared = {}
    if any(each.buckets is None for each in listed.values()):
        declared = {each.name: each async for each in _declared(kv, installation_id, listed)}
    partitions = {}
    strays = []
    for name in sorted(listed):
        each = listed[name]
        known = declared.get(name)
        if each.buckets is not None:
            partitions[name] = Partition(name, each.kind, each.buckets)
        elif known is None:
            strays.append(name)
            partitions[name] = Partition(name, each.kind)
        elif known.kind is not each.kind:
            raise kinds_mixed_error(known, each.kind)
        else:
            partitions[name] = known
    return Inventory(partitions, tuple(strays))


async def is_empty(kv: ListingKv, installation_id: str) -> bool:
    """Whether a store holds no rows of an installation, except its fence and settings."""
    for partition in (await take_inventory(kv, installation_id)).partitions.values():
        if await kv.scan(partition, b"", None, 1):
            return False
    return True


async def _declared(
    kv: Kv, installation_id: str, listed: Mapping[str, PartitionInfo]
) -> AsyncIterator[Partition]:
    """Yields every partition that a layout or a record names; some of them may not exist."""
    keys = InstallationKeys(installation_id)
    yield keys.graveler
    yield keys.cleanup
    yield keys.reads
    yield AuthKeys(installation_id).partition
    for name in [name for name in listed if name.startswith(f"{keys.cleanup.name}/")]:
        drops = Partition(name, listed[name].kind)
        yield drops
        async for _, value in _rows(kv, drops, b""):
            yield decode_drop(value).partition
    async for _, value in _rows(kv, keys.graveler, _REPOSITORIES):
        record = decode_bucket(value)
        if isinstance(record, BucketView):
            continue  # a view has no partitions
        repository = keys.of_repository(record.repository_id, record.instance_uid)
        yield repository.refs
        yield repository.commits
        yield repository.changed
        yield repository.reflog
        yield repository.pulls
        async for partition in _tokens(kv, repository):
            yield partition
        async for key, _ in _rows(kv, repository.refs, repository.UPLOAD_DAYS):
            day = repository.day_of(key)
            if day is None:
                raise key_error(key, "day")
            yield repository.uploads(day)


async def _tokens(kv: Kv, repository: RepositoryKeys) -> AsyncIterator[Partition]:
    async for key, value in _rows(kv, repository.refs, _BRANCHES):
        branch_id = _branch_of(key)
        for token in decode_branch(value).tokens:
            yield repository.token(branch_id, token)


def _branch_of(key: bytes) -> BranchId:
    try:
        return BranchId(key[len(_BRANCHES) :].decode())
    except UnicodeDecodeError as error:
        raise key_error(key, "branch") from error


def _rows(kv: Kv, partition: Partition, prefix: bytes) -> AsyncIterator[Row]:
    """Yields all rows whose keys start with a prefix."""
    end = after_prefix(prefix) if prefix else None
    return rows_of(kv, partition, prefix, end, _PAGE)
