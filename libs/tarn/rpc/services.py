"""The proto services that each process serves."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Final

from google.protobuf.descriptor import ServiceDescriptor

from tarn_proto.auth.v1 import (
    authorization_service_pb2,
    session_key_service_pb2,
    session_service_pb2,
    user_service_pb2,
)
from tarn_proto.compactor.v1 import compactor_service_pb2
from tarn_proto.graveler.v1 import (
    branch_service_pb2,
    bucket_service_pb2,
    collection_service_pb2,
    commit_service_pb2,
    compaction_service_pb2,
    diff_service_pb2,
    dump_service_pb2,
    entry_service_pb2,
    erasure_service_pb2,
    link_service_pb2,
    merge_service_pb2,
    pull_request_service_pb2,
    quota_service_pb2,
    reflog_service_pb2,
    repository_service_pb2,
    settings_service_pb2,
    staging_event_service_pb2,
    tag_service_pb2,
    task_service_pb2,
    upload_service_pb2,
)

__all__ = ["SERVICES"]


def _in(*files: ModuleType) -> tuple[ServiceDescriptor, ...]:
    return tuple(each for file in files for each in file.DESCRIPTOR.services_by_name.values())


SERVICES: Final[Mapping[str, tuple[ServiceDescriptor, ...]]] = MappingProxyType(
    {
        "graveler": _in(
            repository_service_pb2,
            bucket_service_pb2,
            dump_service_pb2,
            settings_service_pb2,
            quota_service_pb2,
            branch_service_pb2,
            tag_service_pb2,
            commit_service_pb2,
            diff_service_pb2,
            merge_service_pb2,
            pull_request_service_pb2,
            reflog_service_pb2,
            task_service_pb2,
            compaction_service_pb2,
            collection_service_pb2,
            erasure_service_pb2,
            entry_service_pb2,
            upload_service_pb2,
            link_service_pb2,
            staging_event_service_pb2,
        ),
        "compactor": _in(compactor_service_pb2),
        "auth": _in(
            session_service_pb2,
            user_service_pb2,
            session_key_service_pb2,
            authorization_service_pb2,
        ),
    }
)
"""By the name of the process."""
