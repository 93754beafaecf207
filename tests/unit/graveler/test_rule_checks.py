"""Each call checks the permission that the proto of its rpc states: without that permission it is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from google.protobuf.descriptor import ServiceDescriptor
from graveler_service import Service
from lake import ADDRESS, entry
from tests.support.plausible import request_of

from tarn.core.access.actions import Action
from tarn.core.access.policy import Grant
from tarn.core.entry import pack, unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.rules import OPERATE, Rule, operations_of, rules_of
from tarn.rpc.services import SERVICES
from tarn_graveler.application import endpoints_of
from tarn_proto.graveler.v1 import entry_service_pb2, merge_service_pb2, upload_service_pb2

VALUES: dict[str, Any] = {
    "repository_id": "lake",
    "bucket_id": "sales",
    "branch_id": "main",
    "tag_id": "v1",
    "ref": "main~0",
    "left_ref": "v1",
    "right_ref": "main@",
    "source_ref": "v1~0",
    "since_ref": "v1~0@",
    "exclude_ref": "v1~0~0",
    "target_ref": "v1@",
    "destination_ref": "main~0@",
    "source_branch_id": "pulled",
    "destination_branch_id": "main",
    "pull_request_id": "1",
    "path": "dir/a",
    "paths": ["dir/a"],
    "prefix": "dir/",
    "entry": entry(1, "op", ADDRESS),
    "template": entry(0),
    "manifest_hash": bytes(32),
    "size_bytes": 1,
    "etag": "0" * 32,
    "kind": "repository",
    "name": "lake",
    "all_users": True,
    "with_data": True,
    "public_read": True,
    "condition": entry_service_pb2.WriteCondition(if_match="*"),
}
RECORDS = {
    "upload.branch_id": "main",
    "upload.path": "dir/of-upload",
    "repository.repository_id": "lake",
    "view.repository_id": "lake",
    "view.ref": "main",
    "holder.repository_id": "lake",
    "shown.repository_id": "lake",
    "source.branch_id": "pulled",
    "destination.branch_id": "main",
    "merge.repository_id": "lake",
    "merge.branch_id": "main",
    "merge.source_ref": "v1~0",
    "revert.repository_id": "lake",
    "revert.branch_id": "main",
    "revert.ref": "main~0",
    "revert.since_ref": "v1~0@",
    "cherry_pick.repository_id": "lake",
    "cherry_pick.branch_id": "main",
    "cherry_pick.ref": "main~0",
    "commit.repository_id": "lake",
    "commit.branch_id": "main",
    "preview.repository_id": "lake",
    "preview.destination_ref": "main~0@",
    "preview.source_ref": "v1~0",
}

HIDDEN = {
    f"TaskService.{name}.others": Reason.TASK_NOT_FOUND
    for name in ("GetTask", "WaitTask", "CancelTask")
}
HIDDEN["BucketService.GetBucketView"] = Reason.BUCKET_NOT_FOUND
HIDDEN["BucketService.GetBucketCors"] = Reason.BUCKET_NOT_FOUND
"""Accesses without which a record is like one that does not exist."""

_MERGE = merge_service_pb2.MergeRequest(repository_id="lake", branch_id="main", source_ref="v1~0")

Case = tuple[ServiceDescriptor, str, Rule]

CASES: list[Case] = [
    (service, name, access)
    for service in SERVICES["graveler"]
    for name, rule in rules_of(service).items()
    for access in (rule, *rule.also.values())
]


def resource_of(rule: Rule) -> str:
    """Fills a template with the values of the request."""
    text = rule.resource.template
    for name, value in {**VALUES, **RECORDS}.items():
        text = text.replace(f"{{{name}}}", value[0] if name == "paths" else str(value))
    assert "{" not in text
    return text


def test_every_service_is_walked() -> None:
    served = endpoints_of(cast("Any", _Anything()), cast("Any", _Anything()))
    assert {endpoint.name for endpoint in served} == {
        service.full_name for service in SERVICES["graveler"]
    }


class _Anything:
    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: object) -> Any:
        return self


async def send(service: Service, of: ServiceDescriptor, name: str, **more: Any) -> Any:
    """Makes one call of the admin with the values above."""
    if OPERATE in of.methods_by_name:
        message = operations_of(of.methods_by_name[OPERATE])
        field = message.fields_by_name.get(name)
        if field is not None:
            request = request_of(field.message_type, VALUES | more)
            return await service.transport.operate(of, name, request, service.admin)
    request = request_of(of.methods_by_name[name].input_type, VALUES | more)
    return await service.transport.unary(of, name, request, service.admin)


@pytest.mark.parametrize(("of", "name", "rule"), CASES, ids=[rule.name for *_, rule in CASES])
async def test_a_call_without_what_its_rule_says_is_refused(
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    of: ServiceDescriptor,
    name: str,
    rule: Rule,
) -> None:
    graveler, admin = service.graveler, service.admin
    await graveler.create_tag(admin, "lake", "v1", "main")
    await graveler.create_bucket_view(admin, "sales", "lake")
    upload = await graveler.create_upload(
        admin, "lake", "main", RECORDS["upload.path"], template=entry(0)
    )
    begun = await graveler.begin_complete_upload(admin, "lake", upload.upload_id, bytes(32))
    more: dict[str, Any] = {"upload_id": upload.upload_id, "claim": begun.claim}
    if of.name == "TaskService" and "task_id" in of.methods_by_name[name].input_type.fields_by_name:
        more["task_id"] = await _task_of_another(service) if not name.startswith("Start") else ""
    if of.name == "PullRequestService" or name == "StartPullRequestMerge":
        await graveler.create_branch(admin, "lake", "pulled", "main")
        await graveler.create_pull_request(
            await service.as_user("ann", "Developer"), "lake", "pulled", "main", "t"
        )
    denied = (rule.require_action(), resource_of(rule))
    checks: list[tuple[Action, str]] = []

    def allows(_: Grant, action: Action, resource: str) -> bool:
        checks.append((action, resource))
        return (action, resource) != denied

    def require(grant: Grant, action: Action, resource: str) -> None:
        if not allows(grant, action, resource):
            raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, "not this")

    monkeypatch.setattr(Grant, "allows", allows)
    monkeypatch.setattr(Grant, "require", require)
    if name == "SetBucketViewPublicRead":
        more["etag"] = ""  # its further access is that to what the view shows
    if name == "FinishCompleteUpload":
        more["entry"] = _of_upload(upload)
    if rule.name == "RepositoryService.ListRepositories.each":
        assert list((await send(service, of, name, prefix="")).repositories) == []
    elif rule.name == "BucketService.ListBuckets.each":
        assert list((await send(service, of, name, prefix="", views_only=True)).buckets) == []
    elif name == "UnstageEntries":
        (outcome,) = (await send(service, of, name)).outcomes
        assert outcome.error.reason == Reason.ACCESS_DENIED
    else:
        uid = (await _repository(service)).instance_uid
        if name == "GetBucketView":  # gateways see all views
            service = replace(service, admin=replace(admin, service_token=""))
        with pytest.raises(TarnError) as caught:
            await send(service, of, name, instance_uid=uid, **more)
        expected = HIDDEN.get(rule.name, Reason.ACCESS_DENIED)
        assert caught.value.reason is expected, checks
    assert checks.count(denied) == 1


async def _task_of_another(service: Service) -> str:
    ann = await service.as_user("ann", "Developer")
    return (await service.graveler.start_merge(ann, _MERGE)).task_id


async def _repository(service: Service) -> Any:
    # Not through the client: the test counts the permission checks.
    (endpoint, *_) = service.endpoints
    repositories = cast("Any", endpoint.handler)._repositories
    return await repositories.get("lake")


def _of_upload(upload: upload_service_pb2.Upload) -> bytes:
    return pack(replace(unpack(entry(1)), address=upload.address, operation_id=upload.upload_id))
