"""Fields that only a newer replica knows survive a change by this one: for every record of the store."""

from collections.abc import Callable, Collection
from typing import cast

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from tarn.core.head_change import HeadOperation
from tarn.core.retention import parse_retention, retention_to_json
from tarn.kv import (
    auth_records,
    collection_records,
    drop_records,
    namespace_records,
    pull_records,
    records,
    rules_records,
    task_records,
)
from tarn.kv.unknown_fields import unknown_of, with_unknown
from tarn_proto.store.v1 import (
    auth_pb2,
    collection_pb2,
    compaction_pb2,
    graveler_pb2,
    pulls_pb2,
    quotas_pb2,
    rules_pb2,
    tasks_pb2,
)

FILES = (
    *(auth_pb2, collection_pb2, compaction_pb2, graveler_pb2, pulls_pb2, quotas_pb2, rules_pb2),
    tasks_pb2,
)
NEW_NUMBER = 1999
NEW_TEXT = "a field of the next release"

CODECS: dict[str, Callable[[bytes], bytes]] = {
    "UserRecord": lambda value: auth_records.encode_user(auth_records.decode_user(value)),
    "CredentialRecord": lambda value: auth_records.encode_credential(
        auth_records.decode_credential(value)
    ),
    "SessionKeyRecord": lambda value: auth_records.encode_session_key(
        auth_records.decode_session_key(value)
    ),
    "WebSessionRecord": lambda value: auth_records.encode_web_session(
        auth_records.decode_web_session(value)
    ),
    "SetupRecord": lambda value: auth_records.encode_setup(auth_records.decode_setup(value)),
    "CollectionRecord": lambda value: collection_records.encode_collection(
        collection_records.decode_collection(value)
    ),
    "RepositoryRecord": lambda value: records.encode_repository(_repository(value)),
    "BucketView": lambda value: records.encode_bucket_view(_view(value)),
    "NamespaceRecord": lambda value: namespace_records.encode_namespace(
        namespace_records.decode_namespace(value)
    ),
    "BranchRecord": lambda value: records.encode_branch(
        records.decode_branch(value), is_pending=records.is_pending_branch(value)
    ),
    "HeadChangeRecord": lambda value: records.encode_head_change(records.decode_head_change(value)),
    "TagRecord": lambda value: records.encode_tag(records.decode_tag(value)),
    "RefNameRecord": lambda value: records.encode_ref_name(records.decode_ref_name(value)),
    "CleanupRecord": lambda value: drop_records.encode_drop(drop_records.decode_drop(value)),
    "SettingsRecord": lambda value: rules_records.encode_settings(
        rules_records.decode_settings(value)
    ),
    "PullRequestRecord": lambda value: pull_records.encode_pull(pull_records.decode_pull(value)),
    "PullEventRecord": lambda value: pull_records.encode_pull_event(
        pull_records.decode_pull_event(value)
    ),
    "PullIndexRecord": lambda value: pull_records.encode_pull_index(
        pull_records.decode_pull_index(value)
    ),
    "TaskRecord": lambda value: task_records.encode_task(task_records.decode_task(value)),
    "TaskQuotaRecord": lambda value: task_records.encode_quota(task_records.decode_quota(value)),
}
"""How a replica reads a record and writes it back."""

SHAPES = {
    "RepositoryRecord": {
        *(
            "view_repository_id",
            "view_instance_uid",
            "view_ref",
            "view_generation",
            "view_change_id",
            "view_is_public_read",
        ),
    },
    "BucketView": {
        *("storage_namespace", "default_branch", "is_deleted", "restore_id", "client_namespace"),
    },
}
"""Two values of one message: the fields that each of them has not."""

EDITED_IN_PLACE = {"UploadRecord", "UploadPartRecord"}
"""Their messages are changed as they were parsed, so protobuf itself keeps what it does not know."""

IMMUTABLE = {
    *("CommitRecord", "CompactionPauseRecord", "ErasedAddressRecord", "ExpiredCommitRecord"),
    "QuotaRecord",
}
"""Written once, or replaced as a whole. The version of a commit says what it holds (docs/formats/commit.md)."""

RETENTION = retention_to_json(parse_retention('{"branches": [{"match": "*", "keep_days": 30}]}'))
TEXTS = {"CollectionRecord.phase": "idle", "TaskRecord.state": "failed"}
TEXTS |= {"SettingsRecord.retention": RETENTION}
TEXTS |= {"TaskErrorRecord.kind": "conflict", "TaskErrorRecord.reason": "MERGE_CONFLICT"}
BYTES = {"CollectionRecord.batch": b"b" * 16, "TaskQuotaRecord.open_task_ids": b"q" * 16}
TEXTS |= {"PullRequestRecord.state": "closed", "PullReviewRecord.verdict": "approve"}
TEXTS |= {"PullEventRecord.kind": "merge"}
NUMBERS = {"RefNameRecord.kind": 1}


def _repository(value: bytes) -> records.Repository:
    found = records.decode_bucket(value)
    assert isinstance(found, records.Repository)
    return found


def _view(value: bytes) -> records.BucketView:
    found = records.decode_bucket(value)
    assert isinstance(found, records.BucketView)
    return found


def _declared() -> dict[str, Descriptor]:
    return {
        name: each for file in FILES for name, each in file.DESCRIPTOR.message_types_by_name.items()
    }


def _embedded() -> set[str]:
    """Messages that are part of others."""
    found = set[str]()
    for declared in _declared().values():
        for field in declared.fields:
            inner = field.message_type
            if inner is not None and not inner.GetOptions().map_entry:
                found.add(inner.name)
    return found


def _newer() -> dict[str, type[Message]]:
    """The messages of the next release: each one has one more field."""
    pool = descriptor_pool.DescriptorPool()
    for file in FILES:
        proto = descriptor_pb2.FileDescriptorProto()
        file.DESCRIPTOR.CopyToProto(proto)
        for message in proto.message_type:
            message.field.add(
                name="new_field",
                number=NEW_NUMBER,
                type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
                label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
            )
        pool.Add(proto)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(each.full_name))
        for name, each in _declared().items()
    }


def _value(field: FieldDescriptor) -> object:
    inside = field.containing_type
    assert inside is not None
    name = f"{inside.name}.{field.name}"
    if name == "BranchRecord.outbox":
        return _filled(NEWER["HeadChangeRecord"]).SerializeToString(deterministic=True)
    if field.type == FieldDescriptor.TYPE_STRING:
        return TEXTS.get(name, f"text of {field.name}")
    if field.type == FieldDescriptor.TYPE_BYTES:
        return BYTES.get(name, f"bytes of {field.name}".encode())
    if field.type == FieldDescriptor.TYPE_BOOL:
        return True
    return NUMBERS.get(name, field.number)


def _filled(kind: type[Message], without: Collection[str] = frozenset()) -> Message:
    """A message of the next release with a value in every field, at every depth."""
    message = kind()
    for field in cast("list[FieldDescriptor]", kind.DESCRIPTOR.fields):
        if field.name in without:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)["a name"] = "a value"
        elif field.message_type is not None:
            inner = _filled(NEWER[field.message_type.name])
            if field.is_repeated:
                getattr(message, field.name).append(inner)
            else:
                getattr(message, field.name).CopyFrom(inner)
        elif field.name == "new_field":
            message.new_field = NEW_TEXT  # type: ignore[attr-defined]
        elif field.is_repeated:
            getattr(message, field.name).append(_value(field))
        else:
            setattr(message, field.name, _value(field))
    return message


NEWER = _newer()


def test_every_record_of_the_store_is_covered() -> None:
    covered = {*CODECS, *EDITED_IN_PLACE, *IMMUTABLE} - {"BucketView"}
    assert covered.isdisjoint(_embedded() - {"HeadChangeRecord"})
    assert covered | _embedded() == set(_declared())


@pytest.mark.parametrize("name", CODECS)
def test_a_record_of_the_next_release_survives_a_change_by_this_one(name: str) -> None:
    """The record is decoded to a value of the core and encoded again, as every change does."""
    kind = NEWER["RepositoryRecord" if name == "BucketView" else name]
    written = _filled(kind, SHAPES.get(name, frozenset()))
    back = kind.FromString(CODECS[name](written.SerializeToString()))
    assert back == written


@pytest.mark.parametrize("name", sorted(EDITED_IN_PLACE))
def test_a_record_that_is_edited_in_place_keeps_what_it_does_not_know(name: str) -> None:
    written = _filled(NEWER[name])
    parsed = getattr(graveler_pb2, name).FromString(written.SerializeToString())
    assert NEWER[name].FromString(parsed.SerializeToString()) == written


def test_a_record_without_unknown_fields_has_none() -> None:
    assert unknown_of(graveler_pb2.TagRecord(commit_id="c", nonce=b"n")) == b""


def test_only_unknown_fields_travel_along() -> None:
    written = NEWER["TagRecord"](commit_id="old", new_field=NEW_TEXT)
    unknown = unknown_of(graveler_pb2.TagRecord.FromString(written.SerializeToString()))
    after = with_unknown(graveler_pb2.TagRecord(commit_id="new"), unknown)
    read = NEWER["TagRecord"].FromString(after.SerializeToString())
    assert (read.commit_id, read.new_field) == ("new", NEW_TEXT)  # type: ignore[attr-defined]


def test_an_operation_of_the_next_release_keeps_its_name_in_the_reflog() -> None:
    record = graveler_pb2.HeadChangeRecord(operation="teleport")
    entry = records.decode_head_change(record.SerializeToString())
    assert entry.operation is HeadOperation.OTHER
    back = graveler_pb2.HeadChangeRecord.FromString(records.encode_head_change(entry))
    assert back.operation == "teleport"


def test_a_kind_of_change_of_the_next_release_stays_blocked_there() -> None:
    protection = rules_pb2.ProtectionRecord(pattern="main", blocked=["force", "later"])
    value = rules_pb2.SettingsRecord(protections=[protection]).SerializeToString()
    back = rules_pb2.SettingsRecord.FromString(CODECS["SettingsRecord"](value))
    assert list(back.protections[0].blocked) == ["force", "later"]
