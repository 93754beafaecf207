from __future__ import annotations

import pytest
from google.protobuf.message import Message

from tarn.rpc.wire.subject import subject_of
from tarn_proto.graveler.v1 import (
    branch_service_pb2,
    commit_service_pb2,
    entry_service_pb2,
    merge_service_pb2,
    repository_service_pb2,
    tag_service_pb2,
)

LAKE = {"repository": "lake"}


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (repository_service_pb2.GetRepositoryRequest(repository_id="lake"), LAKE),
        (repository_service_pb2.ListRepositoriesRequest(prefix="l"), {}),
        (
            branch_service_pb2.CreateBranchRequest(
                repository_id="lake", branch_id="dev", source_ref="main"
            ),
            {**LAKE, "ref": "dev"},
        ),
        (
            tag_service_pb2.GetTagRequest(repository_id="lake", tag_id="v1"),
            {**LAKE, "ref": "v1"},
        ),
        (
            merge_service_pb2.RevertRequest(repository_id="lake", branch_id="main", ref="main~1"),
            {**LAKE, "ref": "main"},
        ),
        (
            merge_service_pb2.PreviewMergeRequest(
                repository_id="lake", destination_ref="main", source_ref="dev"
            ),
            {**LAKE, "ref": "main"},
        ),
        (
            commit_service_pb2.DiffRefsRequest(repository_id="lake", left_ref="a", right_ref="b"),
            {**LAKE, "ref": "a"},
        ),
        (
            entry_service_pb2.Operation(
                lookup=entry_service_pb2.Lookup(repository_id="lake", ref="main~1", path="a/b")
            ),
            {**LAKE, "ref": "main~1", "path": "a/b"},
        ),
        (entry_service_pb2.Operation(), {}),
    ],
)
def test_a_request_names_what_it_is_about(request_: Message, expected: dict[str, str]) -> None:
    assert subject_of(request_) == expected
