"""The rules of rpcs: each rpc has a valid one."""

from __future__ import annotations

import importlib
import pkgutil
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, MethodOptions
from google.protobuf.descriptor_pool import Default

import tarn_proto.auth.v1
import tarn_proto.compactor.v1
import tarn_proto.graveler.v1
from tarn.core.access.actions import (
    REPOSITORIES,
    USERS,
    Action,
    object_resource,
    ref_object_resource,
    repository_resource,
    user_resource,
)
from tarn.core.change_kind import PROTECTABLE, ChangeKind
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.process.system import SystemClock
from tarn.rpc.reference import describe, write_into
from tarn.rpc.rules import Resource, Rule, _problems, rules_of
from tarn.rpc.wire.methods import Endpoint
from tarn_proto.common.v1 import rule_pb2
from tarn_proto.graveler.v1 import settings_service_pb2

DOCUMENT = Path(__file__).parents[3] / "docs" / "design" / "rpcs.md"

PUBLIC = {
    "tarn.auth.v1.SessionService.GetSetupState",
    "tarn.auth.v1.SessionService.SetUp",
    "tarn.auth.v1.SessionService.LogIn",
}

FOR_SERVICES = {
    "tarn.auth.v1.AuthorizationService.Operate.authorize_key": {"gateway"},
    "tarn.auth.v1.AuthorizationService.Operate.authorize_token": {
        "api",
        "compactor",
        "gateway",
        "graveler",
    },
    "tarn.auth.v1.AuthorizationService.Operate.authorize_service": {
        "api",
        "compactor",
        "gateway",
    },
    "tarn.auth.v1.AuthorizationService.Operate.authorize_signature_v2": {"gateway"},
    "tarn.auth.v1.AuthorizationService.Operate.begin_web_session": {"api"},
    "tarn.auth.v1.AuthorizationService.Operate.authorize_web_session": {"api"},
    "tarn.auth.v1.AuthorizationService.Operate.end_web_session": {"api"},
    "tarn.auth.v1.AuthorizationService.Operate.sign_download": {"api"},
}


def services() -> list[ServiceDescriptor]:
    """Returns every service."""
    found: list[ServiceDescriptor] = []
    for package in (tarn_proto.auth.v1, tarn_proto.compactor.v1, tarn_proto.graveler.v1):
        for module in pkgutil.iter_modules(package.__path__):
            if module.name.endswith("_pb2"):
                loaded = importlib.import_module(f"{package.__name__}.{module.name}")
                found += loaded.DESCRIPTOR.services_by_name.values()
    return found


RULES = [rule for service in services() for rule in rules_of(service).values()]


def test_every_rpc_and_every_operation_of_a_stream_has_a_rule() -> None:
    """`rules_of` refuses a service with an rpc without a rule, so the list of names is complete."""
    names = set()
    for service in services():
        for method in service.methods:
            if method.name != "Operate":
                names.add(method.full_name)
                continue
            operation = method.input_type.fields_by_name["operations"].message_type
            assert operation is not None
            fields = operation.oneofs_by_name["operation"].fields
            names |= {f"{method.full_name}.{field.name}" for field in fields}
    assert len(names) > 40
    assert {rule.full_name for rule in RULES} == names


def test_only_rpcs_without_a_known_caller_are_public() -> None:
    assert {rule.full_name for rule in RULES if rule.public_because} == PUBLIC
    others = {rule.full_name: rule.services for rule in RULES if rule.action is None}
    assert {name: services for name, services in others.items() if services} == FOR_SERVICES
    assert others.keys() == PUBLIC | FOR_SERVICES.keys()


def test_what_issues_a_credential_to_a_service_is_marked_for_the_audit_log() -> None:
    assert {rule.name for rule in RULES if rule.issues_credential} == {
        "AuthorizationService.Operate.authorize_key",
        "AuthorizationService.Operate.authorize_service",
        "AuthorizationService.Operate.authorize_signature_v2",
        "AuthorizationService.Operate.begin_web_session",
        "AuthorizationService.Operate.authorize_web_session",
        "AuthorizationService.Operate.sign_download",
    }


def test_anonymous_requests_reach_what_reads_of_objects_need() -> None:
    assert {rule.name for rule in RULES if rule.public_read} == {
        "EntryService.Operate.lookup",
        "EntryService.ListEntries",
        "EntryService.FindErased",
        "RepositoryService.GetRepository",
    }


def test_rpcs_without_side_effects_need_no_write_permission() -> None:
    """With NO_SIDE_EFFECTS and a write permission, a change could be sent twice."""
    writing = {
        Action.CREATE_REPO,
        Action.DELETE_REPO,
        Action.WRITE_REPO,
        Action.WRITE_BUCKETS,
        Action.COMPACT_REPO,
        Action.WRITE_RULES,
        Action.ATTACH_NAMESPACE,
        Action.WRITE_USERS,
        Action.WRITE_QUOTAS,
        Action.MANAGE_SESSIONS,
        Action.REPORT_REQUESTS,
    }
    assert [rule.name for rule in RULES if rule.read_only and rule.action in writing] == [
        "SessionKeyService.ListSessionKeys",  # one action for all that is about sessions
        "SessionService.ListWebSessions",
    ]
    assert (
        {rule.name for rule in RULES if not rule.read_only and rule.action not in writing}
        == {
            "AuthorizationService.Operate.begin_web_session",
            "AuthorizationService.Operate.end_web_session",
            "SessionService.SetUp",
            "SessionService.LogIn",
            "TaskService.StartPullRequestMerge",  # as the next one
            "PullRequestService.MergePullRequest",  # asks for WriteRepo on the branch, which its record names
            "TaskService.StartPreview",  # writes a task, and nothing that belongs to the repository
            "TaskService.CancelTask",  # of the caller's own task
            "CollectionService.BeginCollection",  # these write the collection record, and no content
            "CollectionService.RenewCollection",
            "CollectionService.ExpireCommits",
            "CollectionService.ExpireTags",
            "CollectionService.BeginBatch",
            "CollectionService.EndBatch",
            "CollectionService.EndCollection",
            "CollectionService.HoldCollection",
            "ErasureService.BeginPurge",  # these write the row of a namespace that no repository has
            "ErasureService.EndPurge",
            "ErasureService.SpareNamespace",
            "ErasureService.EraseAddresses",
            "ErasureService.DiscardErased",  # changes content that no reader can read
            "SettingsService.SetRetention",
            "CompactionService.SetCompactionPause",
            "CompactorService.PauseCompactor",
            "CompactorService.ResumeCompactor",
            "UserService.CreateCredential",
            "UserService.DeleteCredential",
        }
    )


def test_names_of_rules_are_those_of_rpcs() -> None:
    by_name = {rule.name: rule for rule in RULES}
    lookup = by_name["EntryService.Operate.lookup"]
    assert lookup.full_name == "tarn.graveler.v1.EntryService.Operate.lookup"
    assert by_name["BranchService.CreateBranch"].also["source"].name == (
        "BranchService.CreateBranch.source"
    )


def test_asking_for_the_permission_of_a_public_rpc_is_denied() -> None:
    (rule,) = [rule for rule in RULES if rule.name == "SessionService.LogIn"]
    with pytest.raises(TarnError) as caught:
        rule.require_action()
    assert caught.value.reason is Reason.ACCESS_DENIED


def test_the_document_has_the_table() -> None:
    assert DOCUMENT.read_text().endswith(describe()), "run `make proto`"


def test_the_tables_of_a_document_are_replaced(tmp_path: Path) -> None:
    document = tmp_path / "rpcs.md"
    document.write_text("Words.\n\n### tarn.graveler.v1.OldService\n\n| old |\n")
    write_into(document)
    assert document.read_text() == "Words.\n\n" + describe()
    document.write_text("Words.\n")
    with pytest.raises(ValueError, match="no table of a service"):
        write_into(document)


def test_the_table_leaves_no_service_out() -> None:
    table = describe()
    assert [each.full_name for each in services() if f"### {each.full_name}\n" not in table] == []


# ---- resources


REQUEST = SimpleNamespace(
    repository_id="lake",
    branch_id="main",
    ref="v1~2",
    path="a/b",
    prefix="",
    tag_id="v1",
    user_id="ann",
)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("repository/*", REPOSITORIES),
        ("user/*", USERS),
        ("repository/{repository_id}", repository_resource("lake")),
        ("repository/{repository_id}/branch/{branch_id}", "repository/lake/branch/main"),
        ("repository/{repository_id}/tag/{tag_id}", "repository/lake/tag/v1"),
        (
            "repository/{repository_id}/branch/{branch_id}/object/{path}",
            object_resource("lake", "main", "a/b"),
        ),
        (
            "repository/{repository_id}/ref/{ref}/object/{prefix}",
            ref_object_resource("lake", "v1~2", ""),
        ),
        ("user/{user_id}", user_resource("ann")),
    ],
)
def test_templates_make_the_resources_of_the_core(template: str, expected: str) -> None:
    assert Resource(template).of(REQUEST) == expected


def test_values_found_by_the_handler_fill_a_template() -> None:
    upload = SimpleNamespace(branch_id="dev", path="x/y")
    of_upload = Resource(
        "repository/{repository_id}/branch/{upload.branch_id}/object/{upload.path}"
    )
    assert of_upload.of_found(REQUEST, upload=upload) == object_resource("lake", "dev", "x/y")
    assert Resource("user/{user_id}").of_found(REQUEST, user_id="bob") == user_resource("bob")


@pytest.mark.parametrize("name", ["", "a/b", "/"])
def test_a_name_cannot_become_another_resource(name: str) -> None:
    request = SimpleNamespace(repository_id="lake", branch_id=name, path="a")
    templates = (
        "repository/{repository_id}/branch/{branch_id}",
        "repository/{repository_id}/branch/{branch_id}/object/{path}",
        "user/{branch_id}",
    )
    for template in templates:
        with pytest.raises(TarnError) as caught:
            Resource(template).of(request)
        assert caught.value.kind is Kind.INVALID
        with pytest.raises(TarnError):
            Resource(template).of_found(request, branch_id=name)


# ---- invalid rules

NUMBERS = count()
TEXT = FieldDescriptorProto.TYPE_STRING


def service_with(rule: rule_pb2.Rule | None) -> ServiceDescriptor:
    """Returns a service with one rpc, `GetToy`, whose request has the field `toy_id`."""
    name = f"toy{next(NUMBERS)}"
    file = FileDescriptorProto(name=f"{name}.proto", package=name, syntax="proto3")
    file.dependency.append(rule_pb2.DESCRIPTOR.name)
    file.message_type.add(name="GetToyRequest").field.add(name="toy_id", number=1, type=TEXT)
    file.message_type.add(name="GetToyResponse")
    method = file.service.add(name="ToyService").method.add(
        name="GetToy",
        input_type=f".{name}.GetToyRequest",
        output_type=f".{name}.GetToyResponse",
        options=MethodOptions(idempotency_level=MethodOptions.NO_SIDE_EFFECTS),
    )
    if rule is not None:
        method.options.Extensions[rule_pb2.rule].CopyFrom(rule)  # type: ignore[index]
    Default().AddSerializedFile(file.SerializeToString())
    return Default().FindServiceByName(f"{name}.ToyService")


def toy_rule(
    action: str = "ReadRepo", resource: str = "user/{toy_id}", change: str = ""
) -> rule_pb2.Rule:
    return rule_pb2.Rule(action=action, resource=resource, change=change)


def with_access(
    *names: str,
    action: str = "ReadRepo",
    resource: str = "user/*",
    when: str = "",
    decided_by_handler: bool = False,
) -> rule_pb2.Rule:
    rule = toy_rule()
    rule.decided_by_handler = decided_by_handler
    for name in names:
        rule.also.add(name=name, action=action, resource=resource, when=when)
    return rule


def test_a_rule_is_read_as_it_is_written() -> None:
    rule: Rule = rules_of(service_with(with_access("twice")))["GetToy"]
    assert (rule.action, rule.read_only, rule.resource.template) == (
        Action.READ_REPO,
        True,
        "user/{toy_id}",
    )
    assert rule.also["twice"].action is Action.READ_REPO


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (None, "it has no rule: set the option"),
        (toy_rule("ReadToys"), "'ReadToys' is not an action"),
        (toy_rule(resource=""), "no resource"),
        (toy_rule(resource="user/{user_id}"), r"\{user_id\} is not a field of GetToyRequest"),
        (with_access("a", action="ReadToys"), "'ReadToys' is not an action"),
        (with_access("a", resource="user/{user_id}"), "not a field of GetToyRequest"),
        (with_access("a", "a"), "two further accesses have the same name"),
        (
            rule_pb2.Rule(action="ReadRepo", public_because="toys are for all"),
            "a public rpc has no action",
        ),
        (
            rule_pb2.Rule(services=["gateway"], public_because="toys are for all"),
            "a public rpc has no action",
        ),
        (rule_pb2.Rule(services=["toys"]), "'toys' is not a service"),
        (
            rule_pb2.Rule(services=["gateway"], action="ReadRepo", resource="user/*"),
            "an rpc for services has no action",
        ),
        (toy_rule(change="merge"), "'merge' is about a branch, and the resource names none"),
        (with_access("a", decided_by_handler=True), "further accesses have when: 'asked'"),
        (with_access("a", when="color"), "'color' is not a field of GetToyRequest"),
        (
            rule_pb2.Rule(action="ReadRepo", resource="user/*", public_read=True),
            "anonymous requests only read",
        ),
    ],
)
def test_a_service_whose_rule_makes_no_sense_is_not_served(
    rule: rule_pb2.Rule | None, text: str
) -> None:
    class Toys:
        async def GetToy(self, request: object, call: object) -> object:  # noqa: N802 - an rpc
            return request, call

    service = service_with(rule)
    with pytest.raises(TypeError, match=f"ToyService.GetToy: .*{text}"):
        rules_of(service)
    with pytest.raises(TypeError, match=text):
        InProcessTransport([Endpoint(service, Toys())], SystemClock())


PROTECTED_ELSEWHERE = {
    "CompactionService.CompactBranch": ChangeKind.ALWAYS,
    "BranchService.CreateBranch": ChangeKind.OTHER,
    "MergeService.CreateMergeBranch": ChangeKind.OTHER,
    "ReflogService.RestoreBranch": ChangeKind.OTHER,
    "PullRequestService.CreatePullRequest": ChangeKind.OTHER,
    "UploadService.ReopenUpload": ChangeKind.ALWAYS,
    "UploadService.AbortUpload": ChangeKind.ALWAYS,
    "ErasureService.DiscardErased": ChangeKind.ALWAYS,
}
"""Rpcs about a branch that no protection blocks: they make one, ask for its merge, give up an upload to it, change no
content, or discard what no reader can read any more."""


def test_every_rpc_that_changes_a_repository_states_the_kind_of_change() -> None:
    """Without a kind, protections of branches do not block the rpc (docs/user/rules.md)."""
    for rule in RULES:
        if rule.read_only or not rule.resource.template.startswith("repository/"):
            assert rule.change is None, f"{rule.name} changes no repository"
            continue
        assert rule.change is not None, f"{rule.name}: set `change` in its option"
        if "/branch/" in rule.resource.template:
            expected = PROTECTED_ELSEWHERE.get(rule.name)
            assert rule.change in ((expected,) if expected else PROTECTABLE), rule.name
            names = set(rule.resource.names)
            known = {"branch_id", "upload.branch_id", "merge.branch_id", "commit.branch_id"}
            known |= {"revert.branch_id", "cherry_pick.branch_id"}
            known |= {"source_branch_id"}
            assert names & known, f"{rule.name} names no branch"
        else:
            assert rule.change not in PROTECTABLE, rule.name


def test_an_unknown_kind_of_change_is_refused() -> None:
    rule = rule_pb2.Rule(action="WriteRepo", resource="repository/{repository_id}", change="wirte")
    request = settings_service_pb2.DESCRIPTOR.message_types_by_name["SetRulesRequest"]
    assert any("wirte" in each for each in _problems(rule, request))
