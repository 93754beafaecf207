from __future__ import annotations

import pytest
from tests.support.servers.toy_service import OpenGate

from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.process.system import SystemClock
from tarn.rpc.wire.methods import Endpoint, check_gate, operate_method, unary_methods
from tarn_proto.auth.v1 import authorization_service_pb2, session_service_pb2, user_service_pb2
from tarn_proto.graveler.v1 import (
    branch_service_pb2,
    commit_service_pb2,
    compaction_service_pb2,
    diff_service_pb2,
    dump_service_pb2,
    entry_service_pb2,
    merge_service_pb2,
    reflog_service_pb2,
    repository_service_pb2,
    tag_service_pb2,
    task_service_pb2,
    upload_service_pb2,
)

ENTRIES = entry_service_pb2.DESCRIPTOR.services_by_name["EntryService"]

READS = {
    "CheckAccess",
    "FindErased",
    *("GetRepository", "ListRepositories", "GetBranch", "ListBranches", "GetTag", "ListTags"),
    *(
        "GetCommit",
        "MeasureRef",
        "GetCompactionPause",
        "ListCompactors",
        "ListCommits",
        "AnnotatePaths",
        "DiffRefs",
        "DiffUncommitted",
        "ListEntries",
    ),
    *(
        "PreviewMerge",
        "PreviewPick",
        "FindMergeBase",
        "SummarizeDiff",
        "SummarizeUncommitted",
        "GetStagingStatistics",
    ),
    *("ListReflog", "ListDeletedBranches"),
    *("ReadDump", "ReadNamespace"),
    *("GetTask", "ListTasks", "WaitTask"),
    *("GetUpload", "ListUploadParts", "ListUploads"),
    *("GetSetupState", "GetCaller", "GetUser", "ListUsers", "ListCredentials"),
    "ListWebSessions",
}


def test_reads_are_told_from_changes_by_their_option() -> None:
    files = [
        session_service_pb2,
        user_service_pb2,
        branch_service_pb2,
        commit_service_pb2,
        compaction_service_pb2,
        diff_service_pb2,
        dump_service_pb2,
        entry_service_pb2,
        merge_service_pb2,
        reflog_service_pb2,
        repository_service_pb2,
        tag_service_pb2,
        task_service_pb2,
        upload_service_pb2,
    ]
    services = [s for file in files for s in file.DESCRIPTOR.services_by_name.values()]
    methods = [method for service in services for method in unary_methods(service).values()]

    assert {method.name for method in methods if method.read_only} == READS


def test_coalesced_streams_have_the_shape_that_batches_need() -> None:
    authorizations = authorization_service_pb2.DESCRIPTOR.services_by_name["AuthorizationService"]
    for service in (ENTRIES, authorizations):
        method = operate_method(service)
        assert method is not None
        assert method.path == f"/{service.full_name}/Operate"
        result = method.result_type.DESCRIPTOR.fields_by_name
        assert {"operation_id", "error"} <= set(result)


def test_handler_that_lacks_an_rpc_is_refused() -> None:
    class Half:
        async def ListEntries(self, request: object, call: object) -> object:  # noqa: N802 - an rpc
            return request, call

        def lookup(self, request: object, call: object) -> object:
            return request, call

    with pytest.raises(TypeError, match=r": lookup, stage, unstage, UnstageEntries, FindErased$"):
        InProcessTransport([Endpoint(ENTRIES, Half())], SystemClock())


def test_no_port_serves_an_endpoint_without_a_gate() -> None:
    with pytest.raises(TypeError, match="has no gate"):
        check_gate(Endpoint(ENTRIES, object()))
    check_gate(Endpoint(ENTRIES, object(), OpenGate()))
