"""All kinds of records, and whether a change of each is an event of the journal: one row for each layout of
`tarn.kv.keys` (docs/design/journal.md, "Events in the KV").

A layout that is not in the table fails `tests/unit/kv/test_record_kinds.py`. A row of a journaled partition that no
kind covers is refused by `tarn.kv.record_events`, so a new record cannot be forgotten.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.keys import AuthKeys, InstallationKeys, RepositoryKeys
from tarn.kv.records import parse_record
from tarn_proto.store.v1 import auth_pb2
from tarn_proto.store.v1 import journal_pb2 as pb

__all__ = ["KINDS", "Place", "RecordKind", "kind_of", "place_of", "root_of"]


class Place(enum.Enum):
    """The partitions that hold journaled records."""

    GRAVELER = "graveler"
    AUTH = "auth"
    REFS = "refs"
    COMMITS = "commits"
    PULLS = "pulls"
    REFLOG = "reflog"

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class RecordKind:
    """A kind of record.

    Attributes:
        layouts: its names in `tarn.kv.keys`: class and member.
        place: where it is; None: in partitions of its own, or in staging tokens.
        begins: how its keys begin; one that does not end with a slash is the whole key.
        why_not: why a change of it is no event of a record; empty: it is one.
        set_operation: what the event of a change says, unless the record is a branch's.
        payload: returns what the event holds of a value; None: all of it.
    """

    layouts: tuple[str, ...]
    place: Place | None = None
    begins: bytes = b""
    why_not: str = ""
    set_operation: pb.JournalOperation = pb.JOURNAL_OPERATION_SET
    payload: Callable[[bytes], bytes] | None = None

    @property
    def is_journaled(self) -> bool:
        """Whether each change leaves an event."""
        return not self.why_not

    def covers(self, key: bytes) -> bool:
        """Whether a row of its place is of this kind."""
        return key.startswith(self.begins) if self.begins.endswith(b"/") else key == self.begins

    def told(self, value: bytes) -> bytes:
        """Returns the payload of an event, given the record's value."""
        return value if self.payload is None else self.payload(value)


def _without_secret(value: bytes) -> bytes:
    """The record of a key pair without its secret: the fields that are known to hold none."""
    record = parse_record(auth_pb2.CredentialRecord(), value)
    return auth_pb2.CredentialRecord(
        access_key_id=record.access_key_id,
        user_id=record.user_id,
        user_uid=record.user_uid,
        description=record.description,
        create_time_us=record.create_time_us,
        use_time_us=record.use_time_us,
        use_kind=record.use_kind,
    ).SerializeToString()


_INSTALLATION: Final = "InstallationKeys."
_AUTH: Final = "AuthKeys."
_REPOSITORY: Final = "RepositoryKeys."

_OF_INSTALLATION: Final = (
    RecordKind((f"{_INSTALLATION}repository",), Place.GRAVELER, InstallationKeys.repository("")),
    RecordKind((f"{_INSTALLATION}namespace",), Place.GRAVELER, InstallationKeys.namespace("")),
    RecordKind(
        (f"{_INSTALLATION}quota", f"{_INSTALLATION}QUOTAS"),
        Place.GRAVELER,
        InstallationKeys.QUOTAS,
    ),
    RecordKind(
        (f"{_INSTALLATION}COMPACTION_PAUSE",), Place.GRAVELER, InstallationKeys.COMPACTION_PAUSE
    ),
    RecordKind(
        (f"{_INSTALLATION}PAGE_KEY",),
        Place.GRAVELER,
        InstallationKeys.PAGE_KEY,
        "a secret, which is made again",
    ),
    RecordKind(
        (f"{_INSTALLATION}DONE_BEFORE", f"{_INSTALLATION}drop"),
        why_not="partitions of the lost store; those of the rebuilt one have other names",
    ),
    RecordKind((f"{_INSTALLATION}reads",), why_not="belongs to the running processes"),
    RecordKind((f"{_INSTALLATION}request_counts",), why_not="counts of requests are not rebuilt"),
    RecordKind((f"{_INSTALLATION}registration",), why_not="says which events to drain"),
    RecordKind(
        (f"{_INSTALLATION}epoch", f"{_INSTALLATION}EPOCHS", f"{_INSTALLATION}DRAIN"),
        why_not="of the drain of the lost store; a rebuilt one begins epochs of its own",
    ),
)

_OF_AUTH: Final = (
    RecordKind((f"{_AUTH}user",), Place.AUTH, AuthKeys.user("")),
    RecordKind(
        (f"{_AUTH}credential",), Place.AUTH, AuthKeys.credential(""), payload=_without_secret
    ),
    RecordKind((f"{_AUTH}setup",), Place.AUTH, AuthKeys.setup()),
    RecordKind(
        (f"{_AUTH}owned", f"{_AUTH}OWNED"),
        Place.AUTH,
        AuthKeys.OWNED,
        "an index, made from the key pairs",
    ),
    RecordKind(
        (f"{_AUTH}deletion",),
        Place.AUTH,
        AuthKeys.deletion(None),
        "what remains of a deleted user opens nothing",
    ),
    RecordKind(
        (f"{_AUTH}secrets",),
        Place.AUTH,
        AuthKeys.secrets(),
        "names keys of sealed secrets, and no secret is rebuilt",
    ),
    RecordKind((f"{_AUTH}session",), Place.AUTH, AuthKeys.session(""), "sessions are not rebuilt"),
    RecordKind(
        (f"{_AUTH}session_end", f"{_AUTH}SESSION_ENDS"),
        Place.AUTH,
        AuthKeys.SESSION_ENDS,
        "an index of session keys",
    ),
    RecordKind(
        (f"{_AUTH}web_session", f"{_AUTH}WEB_SESSIONS"),
        Place.AUTH,
        AuthKeys.WEB_SESSIONS,
        "sessions are not rebuilt",
    ),
    RecordKind(
        (f"{_AUTH}web_session_end", f"{_AUTH}WEB_SESSION_ENDS"),
        Place.AUTH,
        AuthKeys.WEB_SESSION_ENDS,
        "an index of sessions of browsers",
    ),
)

_OF_REPOSITORY: Final = (
    RecordKind((f"{_REPOSITORY}branch",), Place.REFS, RepositoryKeys.branch("")),
    RecordKind((f"{_REPOSITORY}tag",), Place.REFS, RepositoryKeys.tag("")),
    RecordKind((f"{_REPOSITORY}name",), Place.REFS, RepositoryKeys.name("")),
    RecordKind((f"{_REPOSITORY}SETTINGS",), Place.REFS, RepositoryKeys.SETTINGS),
    RecordKind((f"{_REPOSITORY}COLLECTION",), Place.REFS, RepositoryKeys.COLLECTION),
    RecordKind((f"{_REPOSITORY}CLOSED",), Place.REFS, RepositoryKeys.CLOSED),
    RecordKind(
        (f"{_REPOSITORY}upload_day", f"{_REPOSITORY}UPLOAD_DAYS"),
        Place.REFS,
        RepositoryKeys.UPLOAD_DAYS,
        "open uploads are not rebuilt",
    ),
    RecordKind(
        (f"{_REPOSITORY}expired", f"{_REPOSITORY}EXPIRED"),
        Place.COMMITS,
        RepositoryKeys.EXPIRED,
        set_operation=pb.JOURNAL_OPERATION_EXPIRE,
    ),
    RecordKind(
        (f"{_REPOSITORY}erased", f"{_REPOSITORY}ERASED"),
        Place.COMMITS,
        RepositoryKeys.ERASED,
        set_operation=pb.JOURNAL_OPERATION_ERASE,
    ),
    RecordKind(
        (f"{_REPOSITORY}commit",),
        Place.COMMITS,
        RepositoryKeys.commit(""),
        "commits are objects of the bucket",
    ),
    RecordKind((f"{_REPOSITORY}pull", f"{_REPOSITORY}PULLS"), Place.PULLS, RepositoryKeys.PULLS),
    RecordKind((f"{_REPOSITORY}pull_event",), Place.PULLS, b"event/"),
    RecordKind((f"{_REPOSITORY}PULL_INDEX",), Place.PULLS, RepositoryKeys.PULL_INDEX),
    RecordKind(
        (f"{_REPOSITORY}upload", f"{_REPOSITORY}upload_part"),
        why_not="open uploads are not rebuilt",
    ),
    RecordKind(
        (f"{_REPOSITORY}open_upload", f"{_REPOSITORY}OPEN_UPLOADS"),
        why_not="open uploads are not rebuilt",
    ),
    RecordKind(("path_key", "PATHS_START", "PATHS_END"), why_not="has events of objects"),
    RecordKind(("staged_upload", "STAGED_UPLOADS"), why_not="notes of completions are not rebuilt"),
    RecordKind(("copied_note", "COPIED"), why_not="notes of copies are not rebuilt"),
    RecordKind(
        (
            f"{_REPOSITORY}reflog_row",
            f"{_REPOSITORY}reflog_rows",
            f"{_REPOSITORY}REFLOG",
        ),
        Place.REFLOG,
        RepositoryKeys.REFLOG,
        "the outbox of the branch's record has each entry, and the deleted row that of a deletion",
    ),
    RecordKind(
        (f"{_REPOSITORY}deleted_row", f"{_REPOSITORY}DELETED"),
        Place.REFLOG,
        RepositoryKeys.DELETED,
    ),
    RecordKind((f"{_REPOSITORY}changed_paths",), why_not="computed again"),
    RecordKind(
        (f"{_REPOSITORY}task", f"{_REPOSITORY}task_body", f"{_REPOSITORY}task_quota"),
        why_not="tasks are not rebuilt",
    ),
    RecordKind(
        (
            f"{_REPOSITORY}task_look",
            f"{_REPOSITORY}branch_look",
            f"{_REPOSITORY}reflog_expiry",
        ),
        why_not="made again from the record",
    ),
)

KINDS: Final = (*_OF_INSTALLATION, *_OF_AUTH, *_OF_REPOSITORY)
"""The table: it knows every layout of `tarn.kv.keys`."""

_BY_PLACE: Final = {place: tuple(kind for kind in KINDS if kind.place is place) for place in Place}
_SHARED: Final = {"graveler": Place.GRAVELER, "auth": Place.AUTH}
_OF_ROOT: Final = {
    "": Place.REFS,
    "commits": Place.COMMITS,
    "pulls": Place.PULLS,
    "reflog": Place.REFLOG,
}
_OF_REPOSITORIES: Final = set(_OF_ROOT.values())


def place_of(installation_id: str, name: str) -> Place | None:
    """Returns which place of records a partition is; None: it holds none that are journaled.

    Args:
        installation_id: of the store's caller.
        name: of the partition.
    """
    begin = f"{installation_id}/"
    if ":" in name or not name.startswith(begin):  # a staging token, as in `RepositoryKeys.token`
        return None
    root, _, part = name[len(begin) :].partition("/")
    if "-" in root:  # `<repository>-<instance>`; no partition of the installation has a hyphen
        return _OF_ROOT.get(part)
    return None if part else _SHARED.get(root)


def root_of(installation_id: str, name: str) -> str:
    """Returns the root of the repository whose records or objects a partition holds; of others, the installation.

    Args:
        installation_id: of the store's caller.
        name: of the partition.
    """
    if ":" in name or place_of(installation_id, name) in _OF_REPOSITORIES:
        return "/".join(name.split("/", 2)[:2])
    return installation_id


def kind_of(place: Place, key: bytes) -> RecordKind:
    """Returns the kind of a row.

    Raises:
        TarnError: INTERNAL: the table has no kind for it.
    """
    for kind in _BY_PLACE[place]:
        if kind.covers(key):
            return kind
    text = f"the journal knows no record with the key {key!r} among those of {place.value}"
    raise TarnError(Kind.INTERNAL, Reason.INTERNAL, text)
