"""The rules of a repository, as callers of graveler's services see them: what they block, whom, and from when on."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor
from graveler_service import Service, reason_of
from lake import Replicas, Running, create_repository, entry, reached
from lake_rules import ALL, NUMBERS, WRITE, protect, with_dev
from tests.support.plausible import request_of

from tarn.core.access.actions import Action
from tarn.core.access.policy import Grant, Policy
from tarn.core.change_kind import PROTECTABLE, ChangeKind
from tarn.core.entry import pack, unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import UserId
from tarn.core.rules import Rules, Settings
from tarn.kv.keys import RepositoryKeys
from tarn.rpc.rules import OPERATE, Resource, Rule, rules_of
from tarn_graveler.handlers.requests import RepositoryRules
from tarn_graveler.records.settings import RULES_CACHE_SECONDS
from tarn_proto.graveler.v1 import entry_service_pb2
from tarn_proto.graveler.v1 import merge_service_pb2 as merge_pb
from tarn_proto.graveler.v1 import settings_service_pb2 as pb

PLAUSIBLE: dict[str, Any] = {
    "repository_id": "lake",
    "branch_id": "dev",
    "tag_id": "t1",
    "path": "a",
    "paths": ["a"],
    "ref": "main",
    "source_ref": "main",
    "source_branch_id": "dev",
    "destination_branch_id": "main",
    "pull_request_id": "1",
    "target_ref": "main",
    "destination_ref": "main",
    "manifest_hash": bytes(32),
    "expected_commit_id": "0" * 64,
}
"""Arguments of any change. They are valid, as far as anything is checked before the rules are."""


async def begin_upload(service: Service, path: str = "a") -> str:
    made = await service.graveler.create_upload(
        service.admin,
        "lake",
        "dev",
        path,
        template=entry(0),
        checksum_algorithm="",
        is_full_object_checksum=False,
    )
    return made.upload_id


def changes(service: Service) -> Iterator[tuple[MethodDescriptor, Rule]]:
    """Yields every rpc and every operation of a stream that changes something."""
    for endpoint in service.endpoints:
        methods = endpoint.descriptor.methods_by_name
        for name, rule in rules_of(endpoint.descriptor).items():
            if not rule.read_only:
                yield methods[name if name in methods else OPERATE], rule


async def ask(service: Service, method: MethodDescriptor, rule: Rule, **fields: object) -> None:
    """Makes a call with plausible arguments."""

    service_of = method.containing_service
    if method.name != OPERATE:
        await service.transport.unary(
            service_of, method.name, request_of(method.input_type, fields), service.admin
        )
        return
    field = rule.name.rpartition(".")[2]
    operation = entry_service_pb2.Operation.DESCRIPTOR.fields_by_name[field].message_type
    body = request_of(operation, fields)
    await service.transport.operate(service_of, field, body, service.admin)


async def refusals(
    service: Service, *kinds: ChangeKind, upload_id: str = "", if_match: str = "none"
) -> dict[str, TarnError]:
    """Makes every call of some kinds, deletions last; returns the errors by the names of the rpcs."""
    uid = (await service.graveler.get_repository(service.admin, "lake")).instance_uid
    given = {"instance_uid": uid, "upload_id": upload_id, "if_match": if_match, "entry": entry(1)}
    found: dict[str, TarnError] = {}
    for method, rule in sorted(changes(service), key=lambda each: "Delete" in each[1].name):
        if rule.change in kinds:
            try:
                await ask(service, method, rule, **PLAUSIBLE, **given)
            except TarnError as error:
                found[rule.name] = error
    return found


def named(service: Service, *kinds: ChangeKind) -> set[str]:
    return {rule.name for _, rule in changes(service) if rule.change in kinds}


@pytest.mark.parametrize("kind", PROTECTABLE)
async def test_a_protection_of_one_kind_blocks_every_rpc_of_that_kind_and_no_other(
    service: Service, kind: ChangeKind
) -> None:
    await with_dev(service)
    upload_id = await begin_upload(service)
    await protect(service, pb.Protection(pattern="d*", blocked=[NUMBERS[kind]]))
    found = await refusals(service, *PROTECTABLE, upload_id=upload_id)
    found |= await refusals(service, ChangeKind.OTHER)
    refused = {
        name: error for name, error in found.items() if error.reason is Reason.BRANCH_PROTECTED
    }
    assert set(refused) == named(service, kind)
    assert refused
    for error in refused.values():
        assert error.kind is Kind.DENIED
        shown = [error.metadata[name] for name in ("repository", "ref", "rule", "change")]
        assert shown == ["lake", "dev", "d*", kind]


async def test_a_read_only_repository_blocks_every_change_but_that_of_its_rules(
    service: Service,
) -> None:
    await with_dev(service)
    upload_id = await begin_upload(service)
    etag = await service.graveler.set_read_only(service.admin, "lake", True)
    kinds = (*PROTECTABLE, ChangeKind.OTHER)
    found = await refusals(service, *kinds, upload_id=upload_id, if_match=etag)
    assert set(found) == named(service, *kinds)
    assert {"RepositoryService.DeleteRepository", "TagService.CreateTag"} < set(found)
    for name, error in found.items():
        assert error.reason is Reason.REPOSITORY_READ_ONLY, name
        assert error.kind is Kind.DENIED, name
    await service.graveler.abort_upload(service.admin, "lake", upload_id)
    await protect(service)
    await service.graveler.set_read_only(service.admin, "lake", False)
    await service.put("a", 1, "dev")


async def test_an_rpc_without_a_kind_of_change_is_blocked_by_a_read_only_repository(
    service: Service, replicas: Replicas
) -> None:
    async with replicas.replica() as graveler:
        repository = await create_repository(graveler, "pond")
        rules = RepositoryRules(graveler.repositories, graveler.settings, graveler.bucket_views)
        resource = Resource("repository/{repository_id}")
        rule = Rule("tarn.graveler.v1.S.New", Action.WRITE_REPO, resource, False, {})
        grant = Grant(UserId("ann"), Policy(()), "", 1000)
        request = pb.SetMetadataRequest(repository_id="pond")
        assert await rules.enter(rule, request, grant) == repository
        read_only = Settings(Rules(is_read_only=True))
        await graveler.settings.change(repository, "", lambda _: read_only)
        refused = rules.enter(rule, request, grant)
        assert await reason_of(refused) is Reason.REPOSITORY_READ_ONLY


async def test_only_the_branches_that_a_pattern_matches_are_protected(service: Service) -> None:
    await with_dev(service)
    upload_id = await begin_upload(service)
    await protect(service, pb.Protection(pattern="main", blocked=ALL))
    found = await refusals(service, *PROTECTABLE, upload_id=upload_id)
    assert Reason.BRANCH_PROTECTED not in {error.reason for error in found.values()}
    assert await reason_of(service.put("a", 1)) is Reason.BRANCH_PROTECTED


async def test_a_protected_branch_takes_merges_and_nothing_else(service: Service) -> None:
    await with_dev(service)
    kinds = [number for kind, number in NUMBERS.items() if kind is not ChangeKind.MERGE]
    await protect(service, pb.Protection(pattern="main", blocked=kinds))
    graveler, admin = service.graveler, service.admin
    assert await reason_of(service.put("a", 1)) is Reason.BRANCH_PROTECTED
    await service.put("a", 1, "dev")
    await graveler.create_commit(admin, "lake", "dev", "add a")
    await graveler.merge(admin, "lake", "main", "dev")
    assert await service.size("main", "a") == 1
    revert = graveler.revert(admin, "lake", "main", "dev")
    assert await reason_of(revert) is Reason.BRANCH_PROTECTED


async def test_every_matching_protection_counts(service: Service) -> None:
    await with_dev(service)
    await protect(
        service,
        pb.Protection(pattern="d*", blocked=WRITE, exempt_roles=["Admin"]),
        pb.Protection(pattern="dev", blocked=WRITE),
    )
    assert await reason_of(service.put("a", 1, "dev")) is Reason.BRANCH_PROTECTED
    await protect(service, pb.Protection(pattern="d*", blocked=WRITE, exempt_roles=["Admin"]))
    await service.put("a", 1, "dev")


# ---- who is exempt


async def put_as(service: Service, call: Any) -> None:
    await service.stage("a", service.entry(1), call=call)


async def test_exempt_users_and_roles_are_not_bound(service: Service) -> None:
    ann, bob = await service.as_user("ann", "Developer"), await service.as_user("bob", "Developer")
    only_ann = pb.Protection(pattern="main", blocked=ALL, exempt_user_ids=["ann"])
    await protect(service, only_ann)
    await put_as(service, ann)
    await service.graveler.create_commit(ann, "lake", "main", "by ann")
    assert await reason_of(put_as(service, bob)) is Reason.BRANCH_PROTECTED
    assert await reason_of(put_as(service, service.admin)) is Reason.BRANCH_PROTECTED
    found = await service.graveler.get_settings(bob, "lake")
    assert list(found.protections) == [only_ann]
    await protect(service, pb.Protection(pattern="main", blocked=ALL, exempt_roles=["Developer"]))
    await put_as(service, bob)
    assert await reason_of(put_as(service, service.admin)) is Reason.BRANCH_PROTECTED


async def test_a_later_user_of_the_same_name_is_bound(service: Service) -> None:
    await service.as_user("ann", "Developer")
    only_ann = pb.Protection(pattern="main", blocked=ALL, exempt_user_ids=["ann"])
    await protect(service, only_ann)
    await service.auth.delete_user(service.admin, "ann")
    service.replicas.clock.advance(11.0)
    ann = await service.as_user("ann", "Developer")
    assert await reason_of(put_as(service, ann)) is Reason.BRANCH_PROTECTED
    # An unrelated change of the rules does not exempt the new user either.
    await protect(service, only_ann, pb.Protection(pattern="dev", blocked=WRITE))
    assert await reason_of(put_as(service, ann)) is Reason.BRANCH_PROTECTED
    # Naming the user once more, after the exemption was removed, does.
    await protect(service, pb.Protection(pattern="main", blocked=ALL))
    await protect(service, only_ann)
    await put_as(service, ann)


async def test_rules_can_be_changed_after_an_exempt_user_was_deleted(service: Service) -> None:
    await service.as_user("ann", "Developer")
    only_ann = pb.Protection(pattern="main", blocked=ALL, exempt_user_ids=["ann"])
    await protect(service, only_ann)
    await service.auth.delete_user(service.admin, "ann")
    await protect(service, only_ann, pb.Protection(pattern="dev", blocked=WRITE))
    moved = pb.Protection(pattern="m*", blocked=ALL, exempt_user_ids=["ann"])
    assert await reason_of(protect(service, moved)) is Reason.USER_NOT_FOUND


async def test_an_exempt_user_or_role_must_exist(service: Service) -> None:
    unknown = pb.Protection(pattern="main", blocked=ALL, exempt_user_ids=["unknown"])
    assert await reason_of(protect(service, unknown)) is Reason.USER_NOT_FOUND
    wrong = pb.Protection(pattern="main", blocked=ALL, exempt_roles=["Owner"])
    assert await reason_of(protect(service, wrong)) is Reason.ROLE_NOT_FOUND


async def test_only_who_may_change_rules_changes_them(service: Service) -> None:
    ann = await service.as_user("ann", "Developer")
    graveler = service.graveler
    etag = (await graveler.get_settings(ann, "lake")).etag
    await with_dev(service)
    for work in (
        graveler.set_rules(ann, "lake", protections=[], hidden_patterns=[], if_match=etag),
        graveler.set_read_only(ann, "lake", True),
        graveler.set_default_branch(ann, "lake", "dev"),
    ):
        assert await reason_of(work) is Reason.ACCESS_DENIED
    await graveler.set_metadata(ann, "lake", {"owner": "sales"}, if_match=etag)
    bob = await service.as_user("bob", "Analyst")
    etag = (await graveler.get_settings(bob, "lake")).etag
    refused = graveler.set_metadata(bob, "lake", {}, if_match=etag)
    assert await reason_of(refused) is Reason.ACCESS_DENIED


# ---- in force everywhere


async def test_after_the_bound_every_replica_refuses_writes(service: Service) -> None:
    async with service.another_replica() as other:
        await other.put("a", 1)
        await protect(service, pb.Protection(pattern="main", blocked=WRITE))
        assert await reason_of(service.put("a", 2)) is Reason.BRANCH_PROTECTED
        await other.put("a", 3)  # admitted by the rules that it read before
        service.replicas.clock.advance(RULES_CACHE_SECONDS - 0.1)
        await other.put("a", 4)
        service.replicas.clock.advance(0.1)
        assert await reason_of(other.put("a", 5)) is Reason.BRANCH_PROTECTED
        assert await service.size("main", "a") == 4


async def test_all_other_changes_are_refused_at_once_by_every_replica(service: Service) -> None:
    await with_dev(service)
    async with service.another_replica() as other:
        await other.put("a", 1, "dev")
        kinds = [number for kind, number in NUMBERS.items() if kind is not ChangeKind.WRITE]
        await protect(service, pb.Protection(pattern="*", blocked=kinds))
        graveler, admin = other.graveler, other.admin
        head = "0" * 64
        asked: Any = {"repository_id": "lake", "branch_id": "dev", "ref": "main"}
        for work in (
            graveler.create_commit(admin, "lake", "dev", "m"),
            graveler.merge(admin, "lake", "main", "dev"),
            graveler.revert(admin, "lake", "dev", "main"),
            graveler.cherry_pick(admin, "lake", "dev", "main"),
            graveler.start_revert(admin, merge_pb.RevertRequest(**asked)),
            graveler.start_cherry_pick(admin, merge_pb.CherryPickRequest(**asked)),
            graveler.delete_branch(admin, "lake", "dev"),
            graveler.reset_branch(admin, "lake", "dev"),
            graveler.move_branch(admin, "lake", "dev", "main", expected_commit_id=head),
        ):
            assert await reason_of(work) is Reason.BRANCH_PROTECTED
        await service.graveler.set_read_only(admin, "lake", True)
        created = graveler.create_branch(admin, "lake", "new", "main")
        assert await reason_of(created) is Reason.REPOSITORY_READ_ONLY


async def test_rules_that_were_read_before_a_change_are_not_cached_longer_than_the_bound(
    service: Service, running: Running
) -> None:
    """The read of the rules is answered late, after the change was acknowledged."""
    async with service.another_replica() as other:
        held = service.replicas.kv.hold("get_many", RepositoryKeys.SETTINGS, after=True)
        write = running.start(other.put("a", 1))
        await reached(held)
        await protect(service, pb.Protection(pattern="main", blocked=WRITE))
        service.replicas.clock.advance(RULES_CACHE_SECONDS)
        held.open()
        await write  # began before the change
        assert await reason_of(other.put("a", 2)) is Reason.BRANCH_PROTECTED


# ---- uploads


def uploaded(upload_id: str, address: bytes) -> bytes:
    return pack(replace(unpack(entry(1)), operation_id=upload_id, address=address))


async def begun_upload(service: Service) -> tuple[str, bytes]:
    """Begins an upload to `dev` and claims its completion; returns id and entry."""
    made = await service.graveler.create_upload(
        service.admin,
        "lake",
        "dev",
        "a",
        template=entry(0),
        checksum_algorithm="",
        is_full_object_checksum=False,
    )
    return made.upload_id, uploaded(made.upload_id, made.address)


async def test_an_upload_that_began_before_the_rule_is_not_completed(service: Service) -> None:
    await with_dev(service)
    graveler, admin = service.graveler, service.admin
    upload_id, packed = await begun_upload(service)
    begun = await graveler.begin_complete_upload(admin, "lake", upload_id, bytes(32))
    await protect(service, pb.Protection(pattern="dev", blocked=WRITE))
    finish = graveler.finish_complete_upload(admin, "lake", upload_id, begun.claim, packed)
    assert await reason_of(finish) is Reason.BRANCH_PROTECTED
    await graveler.reopen_upload(admin, "lake", upload_id, begun.claim)
    begin = graveler.begin_complete_upload(admin, "lake", upload_id, bytes(32))
    assert await reason_of(begin) is Reason.BRANCH_PROTECTED
    with pytest.raises(TarnError) as raised:
        await service.size("dev", "a")
    assert raised.value.reason is Reason.ENTRY_NOT_FOUND
    await graveler.abort_upload(admin, "lake", upload_id)


async def test_a_second_completion_waits_for_the_first_one_under_a_rule(service: Service) -> None:
    """The first one was admitted before the rule, so the second one must not be told that nothing is written."""
    await with_dev(service)
    graveler, admin = service.graveler, service.admin
    upload_id, _ = await begun_upload(service)
    await graveler.begin_complete_upload(admin, "lake", upload_id, bytes(32))
    await protect(service, pb.Protection(pattern="dev", blocked=WRITE))
    second = graveler.begin_complete_upload(admin, "lake", upload_id, bytes(32))
    assert await reason_of(second) is Reason.UPLOAD_BUSY


async def test_an_upload_that_may_be_staged_is_never_refused(service: Service) -> None:
    """Its row landed and the answer was lost. A refusal would let the gateway remove the object's block."""
    await with_dev(service)
    graveler, admin = service.graveler, service.admin
    upload_id, packed = await begun_upload(service)
    begun = await graveler.begin_complete_upload(admin, "lake", upload_id, bytes(32))
    service.replicas.kv.lose("set_many", b"key/a", applied=True)
    finish = graveler.finish_complete_upload(admin, "lake", upload_id, begun.claim, packed)
    assert await reason_of(finish) is Reason.OUTCOME_UNKNOWN
    await protect(service, pb.Protection(pattern="dev", blocked=WRITE))
    finish = graveler.finish_complete_upload(admin, "lake", upload_id, begun.claim, packed)
    assert await reason_of(finish) is Reason.OUTCOME_UNKNOWN
    await protect(service)
    await graveler.finish_complete_upload(admin, "lake", upload_id, begun.claim, packed)
    assert await service.size("dev", "a") == 1


async def test_the_answer_of_a_completed_upload_is_repeated_under_a_rule(service: Service) -> None:
    await with_dev(service)
    graveler, admin = service.graveler, service.admin
    upload_id, packed = await begun_upload(service)
    begun = await graveler.begin_complete_upload(admin, "lake", upload_id, bytes(32))
    await graveler.finish_complete_upload(admin, "lake", upload_id, begun.claim, packed)
    await protect(service, pb.Protection(pattern="dev", blocked=WRITE))
    await graveler.finish_complete_upload(admin, "lake", upload_id, begun.claim, packed)
    again = await graveler.begin_complete_upload(admin, "lake", upload_id, bytes(32))
    assert again.completed_entry == packed


# ---- several paths


async def test_a_batch_of_deletions_is_refused_as_a_whole(service: Service) -> None:
    await service.put("a", 1)
    await protect(service, pb.Protection(pattern="main", blocked=WRITE))
    batch = service.graveler.unstage_many(service.admin, "lake", "main", ["a", "b"])
    assert await reason_of(batch) is Reason.BRANCH_PROTECTED
    assert await service.size("main", "a") == 1
