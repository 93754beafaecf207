"""What a store holds of an installation, as partitions that can be made elsewhere.

The store's own listing says *what* there is, so nothing is forgotten, not even what no record refers to
any more. It says everything on Cassandra. The embedded store splits nothing and does not remember into
how many buckets a partition was declared to be split; on Cassandra that number is part of a partition's
identity. So it comes from those who declared it: the layout of the keys, the branch records, which name
their staging tokens, the days of uploads, and the list of what is to be dropped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from tarn.core.ids import BranchId
from tarn.kv.auth_keys import AuthKeys
from tarn.kv.fence import fence_partition
from tarn.kv.keys import InstallationKeys, RepositoryKeys, after_prefix, key_error
from tarn.kv.limits import kinds_mixed_error
from tarn.kv.paging import rows_of
from tarn.kv.port import Kv, Listed, ListingKv, Partition, Row
from tarn.kv.records import decode_branch, decode_drop, decode_repository

__all__ = ["Inventory", "is_empty", "take_inventory"]

_PAGE = 1_000
_REPOSITORIES = b"repos/"
_BRANCHES = b"branches/"


@dataclass(frozen=True, slots=True)
class Inventory:
    """All partitions of an installation on one store.

    Attributes:
        partitions: by name, in order of names.
        strays: names of those that no record refers to: what was given up and not dropped yet. They
            are taken along all the same.
    """

    partitions: dict[str, Partition]
    strays: tuple[str, ...]


async def take_inventory(kv: ListingKv, installation_id: str) -> Inventory:
    """Lists everything but the fence and the settings beside it, which are the place's own.

    Raises:
        TarnError: CORRUPT: a record cannot be read, or rows belong to no partition; INVALID: a partition
            is not of the kind that its record says; the store's.
    """
    fence = fence_partition(installation_id).name
    listed = {
        each.name: each async for each in kv.partitions(f"{installation_id}/") if each.name != fence
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
    """Whether a store holds no row of an installation, its fence apart."""
    for partition in (await take_inventory(kv, installation_id)).partitions.values():
        if await kv.scan(partition, b"", None, 1):
            return False
    return True


async def _declared(
    kv: Kv, installation_id: str, listed: Mapping[str, Listed]
) -> AsyncIterator[Partition]:
    """Every partition that a layout or a record names; not all of them need be there."""
    keys = InstallationKeys(installation_id)
    yield keys.graveler
    yield keys.cleanup
    yield AuthKeys(installation_id).partition
    for name in [name for name in listed if name.startswith(f"{keys.cleanup.name}/")]:
        drops = Partition(name, listed[name].kind)
        yield drops
        async for _, value in _rows(kv, drops, b""):
            yield decode_drop(value).partition
    async for _, value in _rows(kv, keys.graveler, _REPOSITORIES):
        record = decode_repository(value)
        repository = keys.of_repository(record.repository_id, record.instance_uid)
        yield repository.refs
        yield repository.commits
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
    """All rows of a prefix."""
    end = after_prefix(prefix) if prefix else None
    return rows_of(kv, partition, prefix, end, _PAGE)
