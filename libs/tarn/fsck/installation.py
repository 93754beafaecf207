"""Objects of no repository: records of repositories, reserved namespaces, auth, drops, partitions.

Damage is read again before it is reported. The order of reads matters for tokens: a token leaves its
branch record *before* it is registered to be dropped, and is dropped *after* that. So partitions are
listed first, records are read next, and registrations last. A token in neither was read in the moment
between the two steps, or is an orphan. The second read decides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from tarn.collection.purging import PURGE_FOLDER
from tarn.core.errors import TarnError
from tarn.core.ids import parse_repository_id
from tarn.core.refs import parse_ref
from tarn.fsck.finding import Code, Finding
from tarn.fsck.session import FsckSession, or_corrupt, shown, uuid_time_us
from tarn.fsck.uploads import upload_partitions
from tarn.kv.agreement import SETTINGS, decode_settings
from tarn.kv.auth_records import (
    decode_credential,
    decode_session_key,
    decode_setup,
    decode_user,
    decode_web_session,
)
from tarn.kv.compaction_records import decode_pause
from tarn.kv.drop_records import Drop, decode_drop
from tarn.kv.fence import FENCE, decode_store, fence_partition
from tarn.kv.keys import AuthKeys, after_prefix
from tarn.kv.namespace_records import Namespace, decode_namespace
from tarn.kv.port import Partition, Row
from tarn.kv.quota_records import decode_quota
from tarn.kv.read_records import check_row, decode_on
from tarn.kv.records import (
    BucketView,
    Repository,
    decode_branch,
    decode_bucket,
)
from tarn.kv.replicas import ReplicaRow
from tarn.kv.request_count_records import check_row as check_counts

__all__ = ["Installation"]

_REPOS = b"repos/"
_NAMESPACES = b"namespaces/"


class Installation:
    """Checks the records that all repositories share."""

    def __init__(self, session: FsckSession) -> None:
        self._session = session
        self._reads = session.reads
        self._state = session.state
        self._keys = session.keys

    def _find(self, code: Code, subject: str, detail: str, size_bytes: int = 0) -> None:
        self._state.find(Finding(code, "", subject, detail, size_bytes))

    async def _decodes(
        self, partition: Partition, row: Row, decode: Callable[[bytes, bytes], None]
    ) -> bool:
        """Whether a row can be read; if not, it is read again and then reported."""
        key, value = row
        try:
            decode(key, value)
        except (TarnError, ValueError):
            found = await self._reads.get(partition, key)
            if found is None:
                return False
            try:
                decode(key, found.value)
            except (
                TarnError,
                ValueError,
            ) as error:  # it reads nothing: whatever it raises is damage
                self._find(Code.RECORD_DAMAGED, f"{partition.name} {shown(key)}", str(error))
                return False
        return True

    # ---- repositories

    async def repositories(self) -> AsyncIterator[Repository]:
        """Yields the repositories in use, by name; reports damaged records, those of bucket views, too."""
        partition = self._keys.graveler
        async for row in self._reads.rows(partition, _REPOS, after_prefix(_REPOS)):
            if await self._decodes(partition, row, _check_repository):
                found = decode_bucket(row[1])
                if isinstance(found, Repository) and found.is_served:
                    yield found

    async def check_namespaces(self) -> None:
        """Checks that every repository has a namespace of its own, and reports unknown keys.

        A namespace is won before its repository is published, and stays occupied after the repository is
        deleted.
        """
        partition = self._keys.graveler
        held: dict[str, tuple[str, Namespace]] = {}
        async for row in self._reads.rows(partition):
            key, value = row
            if key.startswith(_NAMESPACES):
                if await self._decodes(partition, row, _check_namespace):
                    namespace = decode_namespace(value)
                    held[namespace.instance_uid] = shown(key[len(_NAMESPACES) :]), namespace
            elif key.startswith(self._keys.QUOTAS):
                await self._decodes(partition, row, _check_quota)
            elif key == self._keys.COMPACTION_PAUSE:
                await self._decodes(partition, row, _check_pause)
            elif not key.startswith(_REPOS) and key != self._keys.PAGE_KEY:
                self._find(Code.KEY_UNKNOWN, f"{partition.name} {shown(key)}", "unknown key layout")
        async for found in self._holders():
            if found.is_pending:
                await self._check_pending(found)
            if isinstance(found, Repository):
                held.pop(found.instance_uid, None)
                if not found.is_pending:
                    await self._check_holder(found)
        for name, namespace in held.values():
            await self._check_unused(name, namespace)

    async def _check_holder(self, repository: Repository) -> None:
        """Reports a repository whose namespace is reserved for another one."""
        holder = await self._holder(repository)
        if holder != repository.instance_uid and await self._session.is_alive(repository):
            text = f"it holds blocks of repository {repository.repository_id}, but is reserved for {holder}"
            self._find(Code.NAMESPACE_TAKEN, repository.storage_namespace, text)

    async def _check_unused(self, name: str, namespace: Namespace) -> None:
        """Reports a namespace whose repository does not exist, unless a collection is to delete its data.

        If it has deleted them, reports only what came later.
        """
        if not namespace.doom_time_us:
            uid = namespace.instance_uid
            if uuid_time_us(uid) < self._session.oldest_us:
                why = (
                    "which no longer exists"
                    if namespace.is_final
                    else "whose creation failed: it is free"
                )
                text = f"reserved for the repository instance {uid}, {why}"
                self._find(Code.NAMESPACE_ORPHAN, name, text)
            return
        if not namespace.purge_end_us:
            return
        for prefix in ("data/", "_tarn/"):
            page = await self._reads.page(name, prefix, "")
            left = [info for info in page if not info.path.startswith(PURGE_FOLDER)]
            if left:
                text = f"{len(left)} or more files came after its data were deleted, such as {left[0].path}"
                self._find(Code.NAMESPACE_ORPHAN, name, text, sum(info.size for info in left))

    async def _holder(self, repository: Repository) -> str:
        """Returns the instance that holds a repository's namespace, or a description if there is none."""
        key = self._keys.namespace(repository.storage_namespace)
        found = await self._reads.get(self._keys.graveler, key)
        try:
            return "no repository" if found is None else decode_namespace(found.value).instance_uid
        except TarnError as error:
            return or_corrupt(error)

    async def _check_pending(self, repository: Repository | BucketView) -> None:
        """Reports a creation that has been pending for long; the next creation may take its namespace and
        partitions.
        """
        if repository.create_time_us >= self._session.oldest_us:
            return
        name, _ = _name_and_uid(repository)
        found = await self._reads.get(self._keys.graveler, self._keys.repository(name))
        if found is not None and decode_bucket(found.value) == repository:
            what = "bucket view" if isinstance(repository, BucketView) else "repository"
            subject = f"{what} {name}"
            self._find(Code.CREATION_ORPHAN, subject, "its creation never ended")

    async def _records(self) -> AsyncIterator[Repository]:
        async for found in self._holders():
            if isinstance(found, Repository):
                yield found

    async def _holders(self) -> AsyncIterator[Repository | BucketView]:
        async for _, value in self._reads.rows(self._keys.graveler, _REPOS, after_prefix(_REPOS)):
            try:
                yield decode_bucket(value)
            except TarnError:
                continue

    # ---- auth

    async def check_auth(self) -> None:
        """Checks that every record of users and keys can be read."""
        partition = AuthKeys(self._keys.installation_id).partition
        async for row in self._reads.rows(partition):
            if row[0].split(b"/")[0] not in _AUTH:
                self._find(
                    Code.KEY_UNKNOWN, f"{partition.name} {shown(row[0])}", "unknown key layout"
                )
            else:
                await self._decodes(partition, row, _check_auth)

    # ---- records of the store

    async def check_place(self) -> None:
        """Checks that the fence, the shared settings, the rows of replicas, those of the journal of reads and
        the counts of requests can be read."""
        partition = fence_partition(self._keys.installation_id)
        async for row in self._reads.rows(partition):
            check = _OF_THE_PLACE.get(row[0].partition(b"/")[0])
            if check is None:
                self._find(
                    Code.KEY_UNKNOWN, f"{partition.name} {shown(row[0])}", "unknown key layout"
                )
            else:
                await self._decodes(partition, row, check)
        async for row in self._reads.rows(self._keys.reads):
            await self._decodes(self._keys.reads, row, check_row)
        async for row in self._reads.rows(self._keys.request_counts):
            await self._decodes(self._keys.request_counts, row, check_counts)

    # ---- drops and partitions

    async def check_drops(self) -> None:
        """Checks that no token that a branch record names is registered to be dropped. An announced token
        may be named.
        """
        partition = self._keys.cleanup
        async for row in self._reads.rows(partition):
            if row[0] != self._keys.DONE_BEFORE:
                self._find(
                    Code.KEY_UNKNOWN, f"{partition.name} {shown(row[0])}", "unknown key layout"
                )
            else:
                await self._decodes(partition, row, _check_done_before)
        async for partition, row in self._drops():
            if not await self._decodes(partition, row, _check_drop):
                continue
            drop = decode_drop(row[1])
            if drop.owner is not None:
                continue
            token_id = drop.partition.name.rpartition(":")[2]
            known = self._state.all(
                "SELECT uid, branch FROM tokens WHERE token_id=? AND partition=?",
                token_id,
                drop.partition.name,
            )
            for uid, branch in known:
                if await self._is_named(uid, branch, token_id):
                    text = f"branch {branch} names it, but it will be dropped at {drop.drop_time_us} µs"
                    self._find(Code.TOKEN_DOOMED, drop.partition.name, text)

    async def _drops(self) -> AsyncIterator[tuple[Partition, Row]]:
        """Yields the list of partitions to drop, including finished rows of its last hours."""
        prefix = f"{self._keys.cleanup.name}/"
        async for listed in self._reads.partitions(prefix):
            if listed.name.removeprefix(prefix).isdigit():
                partition = self._keys.drops(int(listed.name.removeprefix(prefix)))
                async for row in self._reads.rows(partition):
                    yield partition, row

    async def _is_named(self, uid: str, branch: str, token_id: str) -> bool:
        """Whether a branch record names a token *now*, after its registration was read."""
        async for repository in self._records():
            if repository.instance_uid != uid or repository.is_deleted:
                continue
            keys = self._keys.of_repository(repository.repository_id, uid)
            found = await self._reads.get(keys.refs, keys.branch(branch))
            if found is not None:
                record = decode_branch(found.value)
                return not record.is_deleted and token_id in {
                    token.token_id for token in record.tokens
                }
        return False

    async def list_partitions(self) -> None:
        """Saves the list of existing partitions, before any other read."""
        prefix = f"{self._keys.installation_id}/"
        async for listed in self._reads.partitions(prefix):
            young = max(map(uuid_time_us, _uuids_in(listed.name)), default=0)
            if young < self._session.oldest_us:
                self._state.change("INSERT OR IGNORE INTO partitions VALUES (?)", listed.name)

    async def check_partitions(self) -> None:
        """Checks that every partition belongs to a repository, or is a token that is in use or about to be
        dropped.

        This is the last step, so that every branch record is read after the partitions were listed.
        """
        suspects = await self._unclaimed()
        if suspects:
            # For a moment between leaving its record and being registered, a token is in neither.
            await self._session.clock.sleep(self._session.options.settle_seconds)
            suspects &= await self._unclaimed()
        if not suspects:
            return
        async for listed in self._reads.partitions(f"{self._keys.installation_id}/"):
            partition = Partition(listed.name, listed.kind, listed.buckets or 1)
            if listed.name in suspects and await self._reads.scan(partition, b"", None, 1):
                text = "no record names it, and it is not registered to be dropped"
                self._find(Code.PARTITION_ORPHAN, listed.name, text)

    async def _unclaimed(self) -> set[str]:
        claimed = {
            self._keys.graveler.name,
            self._keys.cleanup.name,
            AuthKeys(self._keys.installation_id).partition.name,
            fence_partition(self._keys.installation_id).name,
            self._keys.reads.name,
            self._keys.request_counts.name,
            self._keys.journal_state.name,
        }
        async for repository in self._records():
            keys = self._keys.of_repository(repository.repository_id, repository.instance_uid)
            parts = (keys.refs, keys.commits, keys.changed, keys.reflog, keys.pulls)
            claimed |= {each.name for each in parts}
            claimed |= {each.name for each in await upload_partitions(self._reads, keys)}
            prefix = keys.branch("")
            async for key, value in self._reads.rows(keys.refs, prefix, after_prefix(prefix)):
                branch = key[len(prefix) :].decode(errors="replace")
                try:
                    tokens = decode_branch(value).tokens
                except TarnError:
                    continue
                claimed |= {f"{keys.root}/{branch}:{token.token_id}" for token in tokens}
        async for _, (_, value) in self._drops():
            try:
                claimed.add(decode_drop(value).partition.name)
            except TarnError:
                continue
        listed = {name for (name,) in self._state.all("SELECT name FROM partitions")}
        hours = (f"{self._keys.cleanup.name}/", f"{self._keys.installation_id}/journal/")
        return {name for name in listed - claimed if not name.startswith(hours)}


def _uuids_in(name: str) -> list[str]:
    """Returns the UUIDs in a partition's name: of the repository's instance, and of the token."""
    parts = name.replace(":", "-").replace("/", "-").split("-")
    return [part for part in parts if len(part) == 32]


def _check_repository(key: bytes, value: bytes) -> None:
    found = decode_bucket(value)
    name, uid = _name_and_uid(found)
    parse_repository_id(name)
    if isinstance(found, BucketView):
        parse_repository_id(found.repository_id)
        parse_ref(found.ref)
    if key != _REPOS + name.encode() or not uid:
        raise ValueError(f"the record belongs to {name!r}")


def _name_and_uid(found: Repository | BucketView) -> tuple[str, str]:
    if isinstance(found, BucketView):
        return found.bucket_id, found.uid
    return found.repository_id, found.instance_uid


def _check_namespace(key: bytes, value: bytes) -> None:
    namespace = decode_namespace(value)
    if not namespace.instance_uid or not namespace.repository_id:
        raise ValueError(f"the namespace {shown(key)} is not reserved for a repository instance")


def _check_quota(key: bytes, value: bytes) -> None:
    decode_quota(key, value)


def _check_pause(_: bytes, value: bytes) -> None:
    decode_pause(value)


def _check_done_before(_: bytes, value: bytes) -> None:
    int(value)


def _check_drop(key: bytes, value: bytes) -> None:
    drop: Drop = decode_drop(value)
    if key != f"drop/{drop.drop_time_us:020d}/{drop.partition.name}".encode():
        raise ValueError(f"the record belongs to partition {drop.partition.name!r}")


def _check_fence(_: bytes, value: bytes) -> None:
    decode_store(value)


def _check_settings(_: bytes, value: bytes) -> None:
    decode_settings(value)


def _check_replica(key: bytes, value: bytes) -> None:
    if key != ReplicaRow.decode(value).key:
        raise ValueError("the row belongs to another replica")


def _check_reads_on(_: bytes, value: bytes) -> None:
    decode_on(value)


_OF_THE_PLACE = {
    FENCE: _check_fence,
    SETTINGS: _check_settings,
    b"replicas": _check_replica,
    b"reads": _check_reads_on,
}


_AUTH = {
    b"setup",
    b"secrets",
    b"users",
    b"credentials",
    b"owned",
    b"deletions",
    b"sessions",
    b"session-ends",
    b"web-sessions",
    b"web-session-ends",
}


def _check_auth(key: bytes, value: bytes) -> None:
    kind, _, name = key.decode().partition("/")
    match kind:
        case "setup":
            decode_setup(value)
        case "users" if decode_user(value).user_id != name:
            raise ValueError(f"the record belongs to user {decode_user(value).user_id!r}")
        case "credentials" if decode_credential(value).access_key_id != name:
            raise ValueError(
                f"the record belongs to key {decode_credential(value).access_key_id!r}"
            )
        case "web-sessions":
            decode_web_session(value)
        case "sessions" if decode_session_key(value).access_key_id != name:
            raise ValueError(
                f"the record belongs to key {decode_session_key(value).access_key_id!r}"
            )
        case _:
            pass
