"""Every operation that has a handler, as every kind of caller: the rules of the rpcs behind it decide."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from google.protobuf.message import Message
from rest_service import Answer, Rest, basic

from tarn.core.access.policy import Policy, parse_roles, statements_of
from tarn.core.ids import UserId
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.rules import Rule, rules_of
from tarn.telemetry.audit.record import Outcome
from tarn_api.endpoint import BASE, OWN_BASE
from tarn_api.operations.table import HANDLERS, OWN_HANDLERS, PUBLIC, TABLE, Refusal
from tarn_proto.auth.v1 import session_key_service_pb2 as session_pb
from tarn_proto.graveler.v1 import entry_service_pb2 as entry_pb
from tarn_proto.graveler.v1 import settings_service_pb2 as settings_pb
from tarn_rest.operations import OPERATIONS, OWN_OPERATIONS, Operation


@dataclass(frozen=True)
class Ask:
    """A request that is complete and changes nothing, and the rpcs that it leads to.

    Attributes:
        rpcs: in the order of their first calls. `?Name` stands for a rule that the endpoint asks itself.
    """

    rpcs: str = ""
    body: object = None
    query: Mapping[str, str] = field(default_factory=dict)
    path: Mapping[str, str] = field(default_factory=dict)


IN_PATHS = {
    "repository": "lake",
    "branch": "nowhere",
    "destinationBranch": "nowhere",
    "tag": "nothing",
    "ref": "main",
    "sourceRef": "main",
    "leftRef": "main",
    "rightRef": "main",
    "commitId": "main",
    "userId": "victim",
    "pull_request": "1",
    "sessionId": "none",
}
OBJECT = {"path": "nothing"}
TO_LAKE = {"destinationBranch": "main"}
GC_RULES = {"default_retention_days": 0, "branches": []}

WALK = {
    "healthCheck": Ask(),
    "getConfig": Ask(),
    "getLakeFSVersion": Ask(),
    "getStorageConfig": Ask(),
    "getGarbageCollectionConfig": Ask(),
    "getSetupState": Ask("GetSetupState"),
    "getAuthCapabilities": Ask(),
    "postStatsEvents": Ask(body={"events": []}),
    "getUsageReportSummary": Ask("ReportRequests GetRequestCounts"),
    "login": Ask("LogIn"),
    "getCurrentUser": Ask("GetCaller"),
    "listUsers": Ask("ListUsers"),
    "createUser": Ask("CreateUser", {"id": "no name"}),
    "getUser": Ask("GetUser"),
    "deleteUser": Ask("DeleteUser", path={"userId": "nobody-yet"}),
    "listUserCredentials": Ask("ListCredentials"),
    "createCredentials": Ask("CreateCredential"),
    "getCredentials": Ask("ListCredentials"),
    "deleteCredentials": Ask("ListCredentials DeleteCredential"),
    "listRepositories": Ask("ListRepositories"),
    "createRepository": Ask(
        "?SetReadOnly CreateRepository",
        {"name": "lake", "storage_namespace": "s3://a/b", "read_only": True},
    ),
    "getRepository": Ask("GetRepository GetSettings"),
    "deleteRepository": Ask("DeleteRepository", path={"repository": "nowhere"}),
    "getRepositoryMetadata": Ask("GetSettings"),
    "setRepositoryMetadata": Ask("GetSettings SetMetadata", {"metadata": {"": "x"}}),
    "deleteRepositoryMetadata": Ask("GetSettings SetMetadata", {"keys": []}),
    "getBranchProtectionRules": Ask("GetSettings"),
    "setBranchProtectionRules": Ask("GetSettings SetRules", [{"pattern": "x\\"}]),
    "createBranchProtectionRulePreflight": Ask("GetSettings ?SetRules"),
    "getGCRules": Ask("GetRetention"),
    "setGCRules": Ask("GetRetention SetRetention", GC_RULES),
    "deleteGCRules": Ask("GetRetention SetRetention"),
    "setGarbageCollectionRulesPreflight": Ask("GetSettings ?SetRetention"),
    "listBranches": Ask("ListBranches"),
    "createBranch": Ask("CreateBranch", {"name": "new", "source": "nowhere"}),
    "getBranch": Ask("GetBranch"),
    "deleteBranch": Ask("DeleteBranch"),
    "resetBranch": Ask("ResetBranch", {"type": "reset"}),
    "hardResetBranch": Ask(
        "GetBranch MoveBranch", query={"ref": "nowhere"}, path={"branch": "main"}
    ),
    "revertBranch": Ask("GetCommit Revert", {"ref": "main", "parent_number": 0}),
    "cherryPick": Ask("GetCommit CherryPick", {"ref": "main"}),
    "listTags": Ask("ListTags"),
    "createTag": Ask("CreateTag", {"id": "new", "ref": "nowhere"}),
    "getTag": Ask("GetTag"),
    "deleteTag": Ask("DeleteTag"),
    "commit": Ask("CreateCommit", {"message": "m"}),
    "getCommit": Ask("GetCommit"),
    "logCommits": Ask("ListCommits"),
    "diffRefs": Ask("DiffRefs"),
    "diffBranch": Ask("DiffUncommitted"),
    "mergeIntoBranch": Ask("Merge", {}),
    "findMergeBase": Ask("DiffRefs GetCommit", path=TO_LAKE),
    "listPullRequests": Ask("ListPullRequests"),
    "createPullRequest": Ask(
        "CreatePullRequest",
        {"title": "t", "source_branch": "nowhere", "destination_branch": "main"},
    ),
    "getPullRequest": Ask("GetPullRequest"),
    "updatePullRequest": Ask("UpdatePullRequest", {"title": "t"}),
    "mergePullRequest": Ask("MergePullRequest"),
    "statObject": Ask("lookup", query=OBJECT),
    "headObject": Ask("lookup", query=OBJECT),
    "listObjects": Ask("ListEntries"),
    "getObject": Ask("lookup", query=OBJECT),
    "getUnderlyingProperties": Ask("lookup", query=OBJECT),
    "copyObject": Ask(
        "?stage GetRepository lookup",
        {"src_path": "nothing", "src_ref": "main"},
        query={"dest_path": "nothing"},
    ),
    "uploadObject": Ask("stage", b"x", query=OBJECT),
    "uploadObjectPreflight": Ask("?stage GetBranch GetTag", query=OBJECT),
    "updateObjectUserMetadata": Ask("?stage GetBranch GetTag", {"set": {}}, query=OBJECT),
    "deleteObject": Ask("unstage", query=OBJECT),
    "deleteObjects": Ask("UnstageEntries", {"paths": ["nothing"]}),
    "createSymlinkFile": Ask(
        "?stage GetRepository GetCommit ListEntries",
        query={"location": "nothing"},
        path={"branch": "main"},
    ),
    "signOut": Ask(),
    "listWebSessions": Ask("ListWebSessions"),
    "endWebSessions": Ask("EndWebSessions"),
    "endWebSession": Ask("EndWebSessions"),
    "watchBranch": Ask("ListReflog"),
}
OF_BUCKETS = {
    "getPhysicalAddress",
    "linkPhysicalAddress",
    "stageObject",
    "createPresignMultipartUpload",
    "uploadPart",
    "uploadPartCopy",
    "completePresignMultipartUpload",
    "abortPresignMultipartUpload",
}
"""They need a block store that signs links: `test_addresses.py` asks who may."""
OWN = {each.id for each in OWN_OPERATIONS}
BY_ID = {each.id: each for each in (*OPERATIONS, *OWN_OPERATIONS)}


@dataclass
class Called:
    """The rpcs that a request led to."""

    rules: dict[str, tuple[Rule, Message]] = field(default_factory=dict)


@contextmanager
def recording(rest: Rest, monkeypatch: pytest.MonkeyPatch, called: Called) -> Any:
    """Records the first call of each rpc that users may make."""
    run = InProcessTransport.unary
    own = rest.service.admin.request_id  # of the calls that a test itself makes

    async def recorded(self: Any, service: Any, name: str, request: Any, call: Any) -> Any:
        rule = rules_of(service)[name]
        if not rule.services and call.request_id != own:
            called.rules.setdefault(name, (rule, request))
        return await run(self, service, name, request, call)

    with monkeypatch.context() as patched:
        for kind in ("unary", "operate"):
            patched.setattr(InProcessTransport, kind, recorded)
        yield


def path_of(operation: Operation, ask: Ask, values: Mapping[str, str]) -> str:
    path = operation.path.format(**{**IN_PATHS, **values, **ask.path})
    return f"{path}?{urlencode(ask.query)}" if ask.query else path


async def asked(
    rest: Rest, operation_id: str, caller: str | None, remote: str = "192.0.2.1"
) -> Answer:
    """Makes the request of an operation."""
    operation, ask = BY_ID[operation_id], WALK[operation_id]
    values, body = {"accessKeyId": "none"}, ask.body
    if operation_id == "deleteCredentials":  # each caller deletes one that is there
        values["accessKeyId"] = (await pair(rest, "victim"))[0]
    if operation_id == "login":
        body = dict(
            zip(("access_key_id", "secret_access_key"), rest.service.admin_key, strict=True)
        )
    path = path_of(operation, ask, values)
    base = OWN_BASE if operation_id in OWN else BASE
    return await rest.ask(operation.method, path, body, caller=caller, remote=remote, base=base)


async def pair(rest: Rest, user_id: str) -> tuple[str, str]:
    made = await rest.service.auth.create_credential(rest.service.admin, user_id=user_id)
    return made.credential.access_key_id, made.secret_access_key


def allows(policy: Policy, user_id: str, rule: Rule, request: Message) -> bool:
    """Whether a policy allows a rpc: its rule, and those of its further resources that its request tells."""
    if rule.action is None:
        return True
    if "user_id" in request.DESCRIPTOR.fields_by_name and not request.user_id:  # type: ignore[attr-defined]
        request = type(request).FromString(request.SerializeToString())
        request.user_id = user_id  # type: ignore[attr-defined] # that of the caller
    owner = SimpleNamespace(user_id="victim")
    found = {"caller": SimpleNamespace(user_id=user_id), "credential": owner}
    rules = [rule, *(each for each in rule.also.values() if each.is_wanted(request))]
    return all(
        policy.allows(each.require_action(), each.resource.of_found(request, **found))
        for each in rules
        # The others are about what the handler finds; what is not allowed is left out of its answer.
        if all(
            name in request.DESCRIPTOR.fields_by_name or name.partition(".")[0] in found
            for name in each.resource.names
        )
    )


def is_refused(operation_id: str, answer: Answer) -> bool:
    if operation_id == "deleteObjects" and answer.status == 200:
        return [each["status_code"] for each in answer.json["errors"]] == [403]
    return answer.status == 403


def test_the_walk_has_every_operation_with_a_handler() -> None:
    assert set(WALK) | OF_BUCKETS == {*HANDLERS, *OWN_HANDLERS}
    assert not set(WALK) & OF_BUCKETS


async def test_every_operation_is_allowed_to_whom_the_rules_of_its_rpcs_allow_it(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = rest.service
    await service.auth.create_user(service.admin, "victim", [])
    behind: dict[str, list[tuple[Rule, Message]]] = {}
    about_lake = settings_pb.SetRulesRequest(repository_id="lake")
    settings = rules_of(settings_pb.DESCRIPTOR.services_by_name["SettingsService"])
    entries = rules_of(entry_pb.DESCRIPTOR.services_by_name["EntryService"])
    asked_here: dict[str, tuple[Rule, Message]] = {
        f"?{name}": (rule, about_lake) for name, rule in settings.items()
    }
    staged = entry_pb.Stage(repository_id="lake", branch_id="nowhere", path="nothing")
    asked_here["?stage"] = entries["stage"], staged
    problems = []
    assert (await rest.ask("GET", "/user")).status == 200  # signed in
    for operation_id, ask in WALK.items():
        called = Called()
        with recording(rest, monkeypatch, called):
            answer = await asked(rest, operation_id, "")
        if is_refused(operation_id, answer) or answer.status == 401 or answer.status >= 500:
            problems.append(f"root {operation_id}: {answer.status} {answer.body!r}")
        names = ask.rpcs.split()
        if list(called.rules) != [name for name in names if not name.startswith("?")]:
            problems.append(f"{operation_id} calls {list(called.rules)}, not {ask.rpcs}")
            continue
        behind[operation_id] = [asked_here.get(name) or called.rules[name] for name in names]
    assert problems == []
    for roles in (["Developer"], ["Analyst"], []):
        user_id = f"a-{roles[0].lower() if roles else 'guest'}"
        policy = Policy(statements_of(parse_roles(roles), UserId(user_id)))
        await service.auth.create_user(service.admin, user_id, roles)
        key, secret = await pair(rest, user_id)
        body = {"access_key_id": key, "secret_access_key": secret}
        token = (await rest.ask("POST", "/auth/login", body, caller=None)).json["token"]
        for caller in (basic(key, secret), f"Bearer {token}"):
            for operation_id, rpcs in behind.items():
                answer = await asked(rest, operation_id, caller)
                may = operation_id in PUBLIC or all(
                    allows(policy, user_id, rule, request) for rule, request in rpcs
                )
                is_wrong = answer.status == 401 or answer.status >= 500
                if is_wrong or is_refused(operation_id, answer) is may:
                    problems.append(f"{user_id} {operation_id}: {answer.status}, may: {may}")
                if answer.status == 403:
                    problems += audit_problems(rest, operation_id, user_id)
    assert problems == []


async def test_what_is_not_offered_is_so_for_every_role_and_asks_nobody(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = rest.service
    callers = [""]
    for role in ("Developer", "Analyst", None):
        user_id = f"a-{role or 'guest'}".lower()
        await service.auth.create_user(service.admin, user_id, [role] if role else [])
        callers.append(basic(*await pair(rest, user_id)))
    refused = {name: row.reason for name, row in TABLE.items() if isinstance(row, Refusal)}
    for caller in callers:
        assert (await rest.ask("GET", "/user", caller=caller)).status == 200  # signed in
        called = Called()
        with recording(rest, monkeypatch, called):
            for name, reason in refused.items():
                operation = BY_ID[name]
                path = operation.path.replace("{", "a").replace("}", "z")
                answer = await rest.ask(operation.method, path, caller=caller)
                assert (answer.status, answer.message) == (501, reason)
        assert called.rules == {}


async def test_whoever_proves_nothing_gets_nothing_of_any_operation(rest: Rest) -> None:
    service = rest.service
    for user_id in ("victim", "gone", "keyless"):
        await service.auth.create_user(service.admin, user_id, ["Admin"])
    gone, keyless = [await pair(rest, each) for each in ("gone", "keyless")]
    tokens = []
    for key, secret in (gone, keyless):
        body = {"access_key_id": key, "secret_access_key": secret}
        answer = await rest.ask("POST", "/auth/login", body, caller=None)
        tokens.append(f"Bearer {answer.json['token']}")
        assert (await rest.ask("GET", "/repositories", caller=basic(key, secret))).status == 200
        assert (await rest.ask("GET", "/repositories", caller=tokens[-1])).status == 200
    await service.auth.delete_user(service.admin, "gone")
    await service.auth.delete_credential(service.admin, keyless[0])
    service.clock.advance(10)  # services/auth/README.md
    made = await service.auth.create_session_key(
        service.admin, session_pb.CreateSessionKeyRequest(duration_s=900)
    )
    session = made.session_key.access_key_id, made.secret_access_key
    callers = (None, basic(*gone), basic(*keyless), *tokens, basic(*session), basic("TARNX", "y"))
    problems = []
    for number, operation_id in enumerate(set(WALK) - PUBLIC):
        for caller in callers:
            remote = f"192.0.2.{number}"  # else its failures are too many
            answer = await asked(rest, operation_id, caller, remote)
            if answer.status != 401 or answer.message != "error authenticating request":
                problems.append(f"{caller} {operation_id}: {answer.status} {answer.body!r}")
            problems += audit_problems(rest, operation_id, "")
    assert problems == []


def audit_problems(rest: Rest, operation_id: str, user_id: str) -> list[str]:
    """Tells if the refusal of the last request has no audit record."""
    record = rest.audit.records[-1]
    found = (record.operation, record.outcome, record.principal)
    wanted = (f"api:{operation_id}", Outcome.DENIED, user_id)
    return [] if found == wanted else [f"audit {found}, not {wanted}"]


async def test_every_change_is_audited(rest: Rest) -> None:
    await rest.service.auth.create_user(rest.service.admin, "victim", [])
    for operation_id in WALK:
        rest.audit.records.clear()
        answer = await asked(rest, operation_id, "")
        is_read = BY_ID[operation_id].method in ("GET", "HEAD")
        found = [(each.operation, each.outcome) for each in rest.audit.records]
        outcome = Outcome.OK if answer.status < 300 else Outcome.FAILED
        assert found == ([] if is_read else [(f"api:{operation_id}", outcome)]), operation_id
