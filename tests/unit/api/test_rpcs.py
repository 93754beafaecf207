"""Tarn's own interface: rpcs as JSON, as Connect's unary protocol has them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rest_service import Answer, Rest, basic

from tarn.core.access.policy import Role
from tarn.core.ids import UserId
from tarn.telemetry.audit.record import Outcome
from tarn_api.endpoint import OWN_BASE
from tarn_api.rpcs import BODY_BYTES_MAX, RPCS
from tarn_proto.graveler.v1 import branch_service_pb2

BRANCHES = "tarn.graveler.v1.BranchService"
REFLOG = "tarn.graveler.v1.ReflogService"


async def make(rest: Rest, rpc: str, request: object, **how: Any) -> Answer:
    return await rest.ask("POST", f"/{rpc}", request, base=OWN_BASE, **how)


async def test_a_branch_is_made_listed_and_its_reflog_read(rest: Rest) -> None:
    named = {"repositoryId": "lake", "branchId": "dev"}
    made = await make(rest, f"{BRANCHES}/CreateBranch", {**named, "sourceRef": "main"})
    assert made.status == 200
    assert made.json["branch"]["branchId"] == "dev"
    listed = await make(rest, f"{BRANCHES}/ListBranches", {"repositoryId": "lake"})
    assert [each["branchId"] for each in listed.json["branches"]] == ["dev", "main"]
    reflog = await make(rest, f"{REFLOG}/ListReflog", named)
    assert reflog.status == 200


async def test_messages_are_taken_as_they_are(rest: Rest) -> None:
    request = branch_service_pb2.GetBranchRequest(repository_id="lake", branch_id="main")
    kind = {"content-type": "application/proto"}
    answer = await make(rest, f"{BRANCHES}/GetBranch", request.SerializeToString(), headers=kind)
    assert answer.headers["content-type"] == "application/proto"
    got = branch_service_pb2.GetBranchResponse.FromString(answer.body)
    assert got.branch.branch_id == "main"


@pytest.mark.parametrize(
    ("rpc", "request_", "status", "code"),
    [
        (f"{BRANCHES}/GetBranch", {"repositoryId": "lake", "branchId": "x"}, 404, "not_found"),
        (f"{BRANCHES}/GetBranch", {"repository": "lake"}, 400, "invalid_argument"),
        (f"{BRANCHES}/GetBranch", {"repositoryId": 7}, 400, "invalid_argument"),
        (f"{BRANCHES}/GetBranch", b"[" * 5000, 400, "invalid_argument"),
        (f"{BRANCHES}/GetBranch", b"\xff{}", 400, "invalid_argument"),
        (f"{BRANCHES}/NoSuchRpc", {}, 404, "not_found"),
        (f"{BRANCHES}/GetBranch", b" " * (BODY_BYTES_MAX + 1), 413, "unknown"),
    ],
)
async def test_errors_have_the_form_of_connect(
    rest: Rest, rpc: str, request_: object, status: int, code: str
) -> None:
    answer = await make(rest, rpc, request_)
    assert (answer.status, answer.json["code"]) == (status, code)
    assert answer.json["message"]
    assert answer.json["reason"]


async def test_creating_what_exists_is_a_conflict(rest: Rest) -> None:
    request = {"repositoryId": "lake", "branchId": "main", "sourceRef": "main"}
    answer = await make(rest, f"{BRANCHES}/CreateBranch", request)
    assert (answer.status, answer.json["code"]) == (409, "already_exists")


async def test_another_type_or_method_is_refused(rest: Rest) -> None:
    kind = {"content-type": "text/plain"}
    answer = await make(rest, f"{BRANCHES}/GetBranch", {}, headers=kind)
    assert answer.status == 415
    answer = await rest.ask("GET", f"/{BRANCHES}/GetBranch", base=OWN_BASE)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("asked", ["x", "-1", "12345678901", "1.5"])
async def test_a_time_limit_is_a_number_of_milliseconds(rest: Rest, asked: str) -> None:
    limit = {"connect-timeout-ms": asked}
    answer = await make(rest, f"{BRANCHES}/GetBranch", {}, headers=limit)
    assert answer.status == 400
    assert "Connect-Timeout-Ms" in answer.message


async def test_lists_are_bounded_before_the_rpc_is_made(rest: Rest) -> None:
    rpc = "tarn.graveler.v1.CommitService/ListCommits"
    request = {"repositoryId": "lake", "ref": "main", "paths": ["a"] * 101}
    answer = await make(rest, rpc, request)
    assert answer.status == 400
    assert "items" in answer.message


async def test_every_rpc_wants_a_caller(rest: Rest) -> None:
    for number, path in enumerate(RPCS):
        for caller in (None, "Bearer x", basic("TARNX", "y")):
            remote = f"192.0.2.{number}"  # else its failures are too many
            answer = await make(rest, path, {}, caller=caller, remote=remote)
            assert (answer.status, answer.json["code"]) == (401, "unauthenticated"), (path, caller)
            assert answer.headers["www-authenticate"].startswith("Basic")


async def test_what_a_caller_may_do_is_decided_behind_it(rest: Rest) -> None:
    service = rest.service
    await service.auth.create_user(service.admin, UserId("ana"), [Role.ANALYST])
    made = await service.auth.create_credential(service.admin, user_id="ana")
    ana = basic(made.credential.access_key_id, made.secret_access_key)
    named = {"repositoryId": "lake", "branchId": "dev", "sourceRef": "main"}
    refused = await make(rest, f"{BRANCHES}/CreateBranch", named, caller=ana)
    assert (refused.status, refused.json["code"]) == (403, "permission_denied")
    read = await make(rest, f"{BRANCHES}/ListBranches", {"repositoryId": "lake"}, caller=ana)
    assert read.status == 200


async def test_changes_and_refusals_are_audited_and_reads_are_not(rest: Rest) -> None:
    named = {"repositoryId": "lake", "branchId": "dev"}
    await make(rest, f"{BRANCHES}/CreateBranch", {**named, "sourceRef": "main"})
    await make(rest, f"{BRANCHES}/GetBranch", named)
    await make(rest, f"{BRANCHES}/GetBranch", named, caller=None)
    made, refused = rest.audit.records
    assert (made.operation, made.outcome) == ("api:BranchService.CreateBranch", Outcome.OK)
    assert made.resource == "repository/lake/ref/dev"
    assert (refused.operation, refused.outcome) == ("api:BranchService.GetBranch", Outcome.DENIED)


def test_only_rpcs_of_users_are_offered() -> None:
    for rpc in RPCS.values():
        assert rpc.rule.action is not None
        assert not rpc.rule.services
        assert not rpc.rule.through
    assert not [path for path in RPCS if "Authorization" in path or "Erasure" in path]


async def test_the_document_has_every_rpc_and_every_schema_that_it_names(rest: Rest) -> None:
    answer = await rest.ask("GET", "/openapi.json", base=OWN_BASE, caller=None)
    document = answer.json
    assert {path.removeprefix("/") for path in document["paths"]} == set(RPCS)
    schemas = document["components"]["schemas"]
    named = {
        part.partition('"')[0] for part in json.dumps(document).split("#/components/schemas/")[1:]
    }
    assert named == set(schemas)
    branch = schemas["tarn.graveler.v1.Branch"]["properties"]
    assert branch["branchId"] == {"type": "string"}
