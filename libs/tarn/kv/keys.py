"""Every partition and key layout of graveler and auth, in one place (docs/design/kv.md, "Partitions and keys").

Partition names start with the installation id, so that several installations share one cluster.
Names inside are separated by characters that the identifiers before them cannot hold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from tarn.core.branch import Token, TokenKind
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import HeadChange
from tarn.core.ids import (
    AccessKeyId,
    BranchId,
    CommitId,
    RepositoryId,
    TagId,
    TaskId,
    UploadId,
    UserId,
)
from tarn.kv.port import Partition, PartitionKind

__all__ = [
    "COPIED",
    "PATHS_END",
    "PATHS_START",
    "STAGED_UPLOADS",
    "AuthKeys",
    "InstallationKeys",
    "RepositoryKeys",
    "after_prefix",
    "copied_note",
    "day_of_upload",
    "key_error",
    "path_key",
    "path_of",
    "paths_of",
    "staged_upload",
]

_REGISTER_BUCKETS = 8
_CHANGED_BUCKETS = 16
_SEQUENCE_MAX = (1 << 63) - 1
_DAY_MS = 86_400_000
_PULL_NUMBER_END = 9_999_999_999
_UPLOAD_ID = re.compile(r"[0-9a-f]{32}")
STAGED_UPLOADS = b"upload/"
"""Prefix of the notes of completed uploads in a staging token."""
COPIED = b"copied/"
"""Prefix of the notes of addresses of a staging token that copies refer to (docs/design/online-deletion.md)."""

_PATH = b"key/"
_BETWEEN_PATHS = "\nkey/"


def path_key(path: str) -> bytes:
    """The row of a path in a staging token."""
    return _PATH + path.encode()


def path_of(key: bytes) -> str:
    """The path of a staged row."""
    return key[len(_PATH) :].decode()


def paths_of(keys: Sequence[bytes]) -> list[str]:
    """The paths of staged rows, decoded together: decoding one by one takes three times as long."""
    paths = b"\n".join(keys)[len(_PATH) :].decode().split(_BETWEEN_PATHS)
    # The split yields more parts if a path holds the separator, and one part if there are no keys.
    return paths if len(paths) == len(keys) else [path_of(key) for key in keys]


def staged_upload(upload_id: str) -> bytes:
    """`upload/<upload id>`: the note that a completed upload writes in the staging token with its row."""
    return STAGED_UPLOADS + upload_id.encode()


def copied_note(address: bytes) -> bytes:
    """`copied/<address>`: the note that an entry of a staging token may be copied by reference."""
    return COPIED + address.hex().encode()


def after_prefix(prefix: bytes) -> bytes:
    """The end (exclusive) of the scan over all keys that start with a prefix of UTF-8, which has no byte 255."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


PATHS_START: Final = path_key("")
PATHS_END: Final = after_prefix(PATHS_START)
"""Bounds of the rows of paths in a staging token."""


def key_error(key: bytes, what: str) -> TarnError:
    """The error for a stored key from which no `what` can be parsed."""
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, f"key {key!r} names no {what}")


def day_of_upload(upload_id: str) -> int | None:
    """The day since 1970 on which an upload began, parsed from its id; None if Tarn did not issue the id."""
    if not _UPLOAD_ID.fullmatch(upload_id):
        return None
    return int(upload_id[:12], 16) // _DAY_MS


@dataclass(frozen=True, slots=True)
class InstallationKeys:
    """Partitions and keys that belong to no single repository."""

    installation_id: str

    DONE_BEFORE: ClassVar[bytes] = b"done-before"
    """Key of the clean-up's progress, a time in µs: all drops due before it are done."""

    PAGE_KEY: ClassVar[bytes] = b"secrets/page-tokens"
    """Key of the 32 random bytes that sign page tokens."""

    QUOTAS: ClassVar[bytes] = b"quotas/"
    """Prefix of the limits of repositories and users."""

    COMPACTION_PAUSE: ClassVar[bytes] = b"compaction/pause"
    """Key of the last pause of background compactions."""

    EPOCHS: ClassVar[bytes] = b"epochs/"
    """Prefix of the rows that name the epochs of journals."""

    DRAIN: ClassVar[bytes] = b"drain"
    """Key of the lease and the progress of the journal's drain."""

    @property
    def graveler(self) -> Partition:
        """Repositories and the namespaces that they occupy."""
        return Partition(f"{self.installation_id}/graveler", PartitionKind.REGISTER)

    @property
    def cleanup(self) -> Partition:
        """The clean-up's progress through the list of partitions to drop."""
        return Partition(f"{self.installation_id}/cleanup", PartitionKind.REGISTER)

    @property
    def reads(self) -> Partition:
        """The rows of the journal of reads. Each is written by one process."""
        name = f"{self.installation_id}/reads"
        return Partition(name, PartitionKind.PLAIN, _REGISTER_BUCKETS)

    @property
    def request_counts(self) -> Partition:
        """The counts of requests; its keys are months, such as `2026-11`."""
        return Partition(f"{self.installation_id}/requests", PartitionKind.REGISTER)

    @property
    def journal_state(self) -> Partition:
        """The epoch of each repository's journal, and how far it is drained."""
        return Partition(f"{self.installation_id}/journal", PartitionKind.REGISTER)

    def drops(self, hour: int) -> Partition:
        """The partitions to drop in one hour since 1970, by time. Dropped whole when the hour is over."""
        return Partition(f"{self.installation_id}/cleanup/{hour}", PartitionKind.PLAIN)

    def registrations(self, hour: int) -> Partition:
        """Changes of records that were registered in one hour since 1970, for the drain of the journal.

        Dropped whole when all of them are done or are registered in a later hour.
        """
        name = f"{self.installation_id}/journal/{hour}"
        return Partition(name, PartitionKind.PLAIN, _REGISTER_BUCKETS)

    @staticmethod
    def registration(root: str, event_id: bytes | None) -> bytes:
        """`event/<root>:<id>`: the registration of an event of a record.

        Args:
            root: `RepositoryKeys.root`, or the id of the installation.
            event_id: None: the prefix of all registrations of a root.
        """
        # No root has a colon, so that of an installation is no prefix of those of its repositories.
        return f"event/{root}:{(event_id or b'').hex()}".encode()

    @staticmethod
    def repository(repository_id: str) -> bytes:
        """`repos/<repository>`; with a prefix of a name, the start of a scan of the matching repositories."""
        return f"repos/{repository_id}".encode()

    @classmethod
    def quota(cls, kind: str, name: str) -> bytes:
        """`quotas/<kind>/<name>`: the limits of a repository or user."""
        return cls.QUOTAS + f"{kind}/{name}".encode()

    @staticmethod
    def namespace(storage_namespace: str) -> bytes:
        """`namespaces/<storage namespace>` → the instance that occupies it."""
        return f"namespaces/{storage_namespace}".encode()

    @classmethod
    def epoch(cls, root: str) -> bytes:
        """`epochs/<root>`: the epoch of the journal of one life of a repository (`RepositoryKeys.root`)."""
        return cls.EPOCHS + root.encode()

    @staticmethod
    def drop(drop_time_us: int, partition: str) -> bytes:
        """`drop/<time>/<partition>`: keys sort by time, in µs since 1970."""
        return f"drop/{drop_time_us:020d}/{partition}".encode()

    def of_repository(self, repository_id: RepositoryId, instance_uid: str) -> RepositoryKeys:
        """The partitions of one life (one instance) of a repository."""
        return RepositoryKeys(f"{self.installation_id}/{repository_id}-{instance_uid}")


class RepositoryKeys:
    """The partitions and keys of one repository.

    Attributes:
        root: prefix of the names of all its partitions.
        refs: branches, tags and upload days. Kept as one object because every read and write uses it.
    """

    UPLOAD_DAYS: ClassVar[bytes] = b"upload-days/"
    """Prefix of the rows that name the days with recorded uploads."""

    SETTINGS: ClassVar[bytes] = b"settings"
    """The row of `refs` with the repository's rules and metadata; absent until the first change."""

    CLOSED: ClassVar[bytes] = b"closed"
    """A row of `refs` that exists once the deletion of the repository has begun."""

    COLLECTION: ClassVar[bytes] = b"collection"
    """The row of `refs` with the collection record; absent until the first run or hold."""

    DELETED: ClassVar[bytes] = b"deleted/"
    """Prefix of the index of deleted branches, in the partition of the reflogs."""

    REFLOG: ClassVar[bytes] = b"log/"
    """Prefix of the entries of all reflogs."""

    OPEN_UPLOADS: ClassVar[bytes] = b"uploads/"
    """Prefix of the index of a day's uploads."""

    EXPIRED: ClassVar[bytes] = b"expired/"
    """Prefix of the rows of expired commits."""

    ERASED: ClassVar[bytes] = b"erased/"
    """Prefix of the rows of erased addresses, in the partition of the commits."""

    PULL_INDEX: ClassVar[bytes] = b"index"
    """The row of the pull requests' partition with their numbers, and those that are open."""

    PULLS: ClassVar[bytes] = b"pull/"
    """Prefix of the records of pull requests, newest first."""

    __slots__ = ("refs", "root")

    def __init__(self, root: str) -> None:
        self.root = root
        self.refs = Partition(root, PartitionKind.REGISTER, _REGISTER_BUCKETS)

    @property
    def commits(self) -> Partition:
        """Commits: immutable."""
        return Partition(f"{self.root}/commits", PartitionKind.PLAIN)

    @property
    def changed(self) -> Partition:
        """The paths that each commit changed: an aid that can be computed again."""
        return Partition(f"{self.root}/changed", PartitionKind.PLAIN, _CHANGED_BUCKETS)

    @property
    def reflog(self) -> Partition:
        """Entries of the reflogs of all branches. Rows are written once, and removed when they expire."""
        return Partition(f"{self.root}/reflog", PartitionKind.PLAIN, _REGISTER_BUCKETS)

    def reflog_expiry(self, branch_id: BranchId) -> Partition:
        """A name without rows, under which the expiry of a reflog is registered in the drop list."""
        return Partition(f"{self.root}/reflog/{branch_id}", PartitionKind.PLAIN)

    def branch_look(self, branch_id: BranchId) -> Partition:
        """A name without rows, under which the end of a branch is registered in the drop list."""
        return Partition(f"{self.root}/expiry/{branch_id}", PartitionKind.PLAIN)

    def uploads(self, day: int) -> Partition:
        """Multipart uploads that began on one day since 1970. Dropped whole when all of them have ended."""
        return Partition(f"{self.root}/uploads/{day}", PartitionKind.REGISTER, _REGISTER_BUCKETS)

    def tasks(self, day: int) -> Partition:
        """Tasks whose ids are of one day since 1970. Registered to be dropped before its first row."""
        return Partition(f"{self.root}/tasks/{day}", PartitionKind.REGISTER)

    def task_look(self, task_id: TaskId) -> Partition:
        """A name without rows, under which a look at a task is registered in the drop list."""
        return Partition(f"{self.root}/task/{task_id}", PartitionKind.PLAIN)

    @property
    def pulls(self) -> Partition:
        """Pull requests and what happened to them."""
        return Partition(f"{self.root}/pulls", PartitionKind.REGISTER, _REGISTER_BUCKETS)

    @classmethod
    def pull(cls, number: int) -> bytes:
        """`pull/<greatest number less this one>`: sorted from the newest to the oldest."""
        return cls.PULLS + b"%010d" % (_PULL_NUMBER_END - number)

    @staticmethod
    def pull_event(number: int, sequence: int) -> bytes:
        """`event/<number>/<sequence>`: sorted by time."""
        return b"event/%010d/%06d" % (number, sequence)

    @staticmethod
    def pull_event_sequence(key: bytes) -> int:
        """The sequence in the key of an event."""
        return int(key.rpartition(b"/")[2])

    @staticmethod
    def task(task_id: TaskId | str) -> bytes:
        """`task/<task id>`: sorted by the time of the start."""
        return f"task/{task_id}".encode()

    @staticmethod
    def task_body(task_id: TaskId | str, digest: bytes) -> bytes:
        """`body/<task id>/<SHA-256>`: a long request or response of a task."""
        return f"body/{task_id}/{digest.hex()}".encode()

    @staticmethod
    def task_quota(user_uid: bytes) -> bytes:
        """`user/<user uid>`: the starts of one user, in the partition of their day."""
        return f"user/{user_uid.hex()}".encode()

    @classmethod
    def upload_day(cls, day: int) -> bytes:
        """`upload-days/<day>`, a row of `refs`."""
        return cls.UPLOAD_DAYS + b"%d" % day

    @classmethod
    def day_of(cls, key: bytes) -> int | None:
        """The day that an `upload-days` row names; None if the key names no day."""
        name = key.removeprefix(cls.UPLOAD_DAYS)
        return int(name) if name.isdigit() else None

    def token(self, branch_id: BranchId, token: Token) -> Partition:
        """The rows of one staging token."""
        conditional = token.kind is TokenKind.CONDITIONAL
        kind = PartitionKind.REGISTER if conditional else PartitionKind.PLAIN
        return Partition(f"{self.root}/{branch_id}:{token.token_id}", kind, token.buckets)

    @staticmethod
    def branch(branch_id: BranchId | str) -> bytes:
        """`branches/<branch>`."""
        return f"branches/{branch_id}".encode()

    @staticmethod
    def tag(tag_id: TagId | str) -> bytes:
        """`tags/<tag>`."""
        return f"tags/{tag_id}".encode()

    @staticmethod
    def name(name: str) -> bytes:
        """`names/<name>`: the register that says whether the name belongs to a branch or to a tag."""
        return f"names/{name}".encode()

    @staticmethod
    def commit(commit_id: CommitId | str) -> bytes:
        """`commits/<commit id>`; with a prefix of an id, the start of a scan of the matching commits."""
        return f"commits/{commit_id}".encode()

    @classmethod
    def expired(cls, commit_id: CommitId | str) -> bytes:
        """`expired/<commit id>`, in the partition of the commits: the commit keeps none of its objects."""
        return cls.EXPIRED + commit_id.encode()

    @classmethod
    def erased(cls, address: bytes) -> bytes:
        """`erased/<address>`, in the partition of the commits: the block is erased, or about to be."""
        return cls.ERASED + address.hex().encode()

    @staticmethod
    def changed_paths(commit_id: CommitId) -> bytes:
        """`changed/<commit id>` → the paths that the commit changed."""
        return f"changed/{commit_id}".encode()

    @staticmethod
    def reflog_rows(branch_id: BranchId | str) -> bytes:
        """`log/<branch>/`: the prefix of the entries of one branch's reflog, newest first."""
        return RepositoryKeys.REFLOG + f"{branch_id}/".encode()

    @classmethod
    def reflog_row(cls, branch_id: BranchId | str, entry: HeadChange) -> bytes:
        """`log/<branch>/<order>/<entry id>`. At equal sequences, deletions come after other changes, latest first."""
        return cls.reflog_rows(branch_id) + cls._reflog_order(entry)

    @classmethod
    def deleted_row(cls, branch_id: BranchId | str, entry: HeadChange) -> bytes:
        """`deleted/<branch>/<order>/<entry id>`: an index of the deletions of branches."""
        return cls.DELETED + f"{branch_id}/".encode() + cls._reflog_order(entry)

    @staticmethod
    def _reflog_order(entry: HeadChange) -> bytes:
        order = f"{_SEQUENCE_MAX - entry.sequence:016x}/0"
        if entry.is_deletion:
            # Attempts at one deletion have the same sequence; the one that removed the branch is the last.
            order = f"{order[:-1]}1/{_SEQUENCE_MAX - entry.time_us:016x}"
        return f"{order}/{entry.entry_id.hex()}".encode()

    @classmethod
    def deleted_branch(cls, key: bytes) -> BranchId:
        """The branch that a `deleted` row names."""
        return BranchId(key[len(cls.DELETED) :].partition(b"/")[0].decode())

    @staticmethod
    def upload(upload_id: UploadId) -> bytes:
        """`multipart/<upload id>`."""
        return f"multipart/{upload_id}".encode()

    @staticmethod
    def upload_part(upload_id: UploadId, part_number: int) -> bytes:
        """`parts/<upload id>/<number>`: sorted by number."""
        return f"parts/{upload_id}/{part_number:05d}".encode()

    @staticmethod
    def open_upload(branch_id: BranchId | str, path: str, upload_id: UploadId | str) -> bytes:
        r"""`uploads/<branch>/<path>\0<upload id>`: sorted by path, then by id."""
        return f"uploads/{branch_id}/{path}\0{upload_id}".encode()

    @staticmethod
    def upload_of(key: bytes) -> UploadId:
        """The upload id in an `uploads` key."""
        return UploadId(key.rpartition(b"\0")[2].decode())


@dataclass(frozen=True, slots=True)
class AuthKeys:
    """The partition and keys that auth uses. User ids and access key ids contain no slash."""

    installation_id: str

    OWNED: ClassVar[bytes] = b"owned/"
    """Prefix of the index of access keys by their user."""

    OWNED_VALUE: ClassVar[bytes] = b"\x01"
    """The value of every row of that index."""

    @property
    def partition(self) -> Partition:
        """The only partition of auth; every write to it is linearized."""
        return Partition(f"{self.installation_id}/auth", PartitionKind.REGISTER)

    @staticmethod
    def setup() -> bytes:
        """`setup`: present once the first admin exists."""
        return b"setup"

    @staticmethod
    def secrets() -> bytes:
        """`secrets`: the names of the encryption keys that the installation has been run with."""
        return b"secrets"

    @staticmethod
    def user(user_id: UserId | str) -> bytes:
        """`users/<user id>`."""
        return f"users/{user_id}".encode()

    @staticmethod
    def credential(access_key_id: AccessKeyId | str) -> bytes:
        """`credentials/<access key id>`."""
        return f"credentials/{access_key_id}".encode()

    @staticmethod
    def owned(user_uid: bytes, access_key_id: AccessKeyId | str) -> bytes:
        """`owned/<user uid>/<access key id>`: an index of a user's access keys; the value is unused.

        The key holds the uid, not the name, so that a re-created user does not inherit its predecessor's keys.
        """
        return AuthKeys.OWNED + f"{user_uid.hex()}/{access_key_id}".encode()

    SESSION_ENDS: ClassVar[bytes] = b"session-ends/"
    """Prefix of the index of session keys by their user."""

    @staticmethod
    def session(access_key_id: AccessKeyId | str) -> bytes:
        """`sessions/<access key id>`."""
        return f"sessions/{access_key_id}".encode()

    @staticmethod
    def session_end(user_uid: bytes, access_key_id: AccessKeyId | str) -> bytes:
        """`session-ends/<user uid>/<access key id>` → when the session key expires, 8 bytes, Unix microseconds.

        A renewal changes the session key first, so the end in this row may be earlier than the true one.
        """
        return AuthKeys.SESSION_ENDS + f"{user_uid.hex()}/{access_key_id}".encode()

    WEB_SESSIONS: ClassVar[bytes] = b"web-sessions/"
    """Prefix of the sessions of browsers."""

    WEB_SESSION_ENDS: ClassVar[bytes] = b"web-session-ends/"
    """Prefix of the index of sessions of browsers by their user."""

    @staticmethod
    def web_session(digest: bytes) -> bytes:
        """`web-sessions/<SHA-256 of the secret>`."""
        return AuthKeys.WEB_SESSIONS + digest.hex().encode()

    @staticmethod
    def web_session_end(user_uid: bytes, digest: bytes) -> bytes:
        """`web-session-ends/<user uid>/<SHA-256 of the secret>` → its end at the latest, 8 bytes, Unix microseconds."""
        return AuthKeys.WEB_SESSION_ENDS + f"{user_uid.hex()}/{digest.hex()}".encode()

    @staticmethod
    def deletion(user_uid: bytes | None) -> bytes:
        """`deletions/<user uid>` → the user whose deletion has begun. None gives the prefix of all such keys."""
        return b"deletions/" if user_uid is None else f"deletions/{user_uid.hex()}".encode()
