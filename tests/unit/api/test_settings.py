"""Settings of repositories, as clients of lakeFS see them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rest_service import Rest, basic

from tarn.core.errors import Kind, Reason, TarnError
from tarn.telemetry.audit.record import Outcome
from tarn_api.operations.samples import SAMPLES
from tarn_proto.graveler.v1 import settings_service_pb2 as pb

LAKE = "/repositories/lake"
METADATA = f"{LAKE}/metadata"
PROTECTION = f"{LAKE}/settings/branch_protection"
GC = f"{LAKE}/settings/gc_rules"


async def caller(rest: Rest, role: str) -> str:
    """Returns the header `Authorization` of a new user with a role."""
    service = rest.service
    await service.auth.create_user(service.admin, role.lower(), [role])
    made = await service.auth.create_credential(service.admin, user_id=role.lower())
    return basic(made.credential.access_key_id, made.secret_access_key)


def once_changed_before(rest: Rest, method: str, times: int) -> None:
    """Lets another caller change the settings before so many changes by a method of graveler's client."""
    graveler: Any = rest.service.graveler
    change, set_rules = getattr(graveler, method), graveler.set_rules
    left = times

    async def changed(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        if left:
            left -= 1
            now = await graveler.get_settings(rest.service.admin, "lake")
            await set_rules(
                rest.service.admin,
                "lake",
                protections=[],
                hidden_patterns=[f"h{left}"],
                if_match=now.etag,
            )
        return await change(*args, **kwargs)

    setattr(graveler, method, changed)


async def test_metadata_are_added_and_removed_by_name(rest: Rest) -> None:
    assert (await rest.ask("POST", METADATA, {"metadata": {"a": "1", "b": "2"}})).status == 204
    assert (await rest.ask("POST", METADATA, {"metadata": {"b": "3", "c": "4"}})).status == 204
    assert (await rest.ask("GET", METADATA)).json == {"a": "1", "b": "3", "c": "4"}
    assert (await rest.ask("DELETE", METADATA, {"keys": ["a", "never"]})).status == 204
    assert (await rest.ask("GET", METADATA)).json == {"b": "3", "c": "4"}
    assert (await rest.ask("POST", METADATA, {"metadata": {"": "x"}})).status == 400
    nowhere = "/repositories/nowhere/metadata"
    assert (await rest.ask("POST", nowhere, {"metadata": {}})).status == 404


@pytest.mark.parametrize(
    ("method", "verb", "path", "body"),
    [
        ("set_metadata", "POST", METADATA, {"metadata": {"a": "1"}}),
        ("set_rules", "PUT", PROTECTION, [{"pattern": "main"}]),
        ("set_retention", "PUT", GC, {"default_retention_days": 7, "branches": []}),
    ],
)
async def test_settings_that_others_change_at_the_same_time_are_read_again(
    rest: Rest, method: str, verb: str, path: str, body: object
) -> None:
    once_changed_before(rest, method, 4)
    assert (await rest.ask(verb, path, body)).status == 204
    once_changed_before(rest, method, 6)
    refused = await rest.ask(verb, path, body)
    assert (refused.status, "nothing was done" in refused.message) == (503, True)


async def test_protected_branches(rest: Rest) -> None:
    none = await rest.ask("GET", PROTECTION)
    assert (none.status, none.json) == (200, [])
    wanted = [{"pattern": "main"}, {"pattern": "release-*"}, {"pattern": "main"}]
    # Nothing is protected yet.
    assert (await rest.ask("PUT", PROTECTION, wanted, headers={"if-match": ""})).status == 204
    found = await rest.ask("GET", PROTECTION)
    assert found.json == [{"pattern": "main"}, {"pattern": "release-*"}]
    assert '"' not in found.headers["etag"]
    for stale in ("", "0", none.headers["etag"]):
        refused = await rest.ask("PUT", PROTECTION, [], headers={"if-match": stale})
        assert (refused.status, refused.message) == (412, "Precondition failed")
    commit = {"message": "m", "allow_empty": True}
    main = f"{LAKE}/branches/main"
    for method, path, body, told in (
        ("POST", f"{main}/commits", commit, "cannot commit to protected branch: branch lake/main"),
        ("DELETE", f"{main}/objects?path=a", None, "cannot write to protected branch: branch"),
        ("PUT", main, {"type": "reset"}, "branch lake/main is protected"),
        ("PUT", f"{main}/hard_reset?ref=main", None, "branch lake/main is protected"),
    ):
        refused = await rest.ask(method, path, body)
        assert (refused.status, refused.message.startswith(told)) == (403, True), refused.message
    await rest.ask("POST", f"{LAKE}/branches", {"name": "release-1", "source": "main"})
    assert (await rest.ask("POST", f"{LAKE}/refs/main/merge/release-1", {})).status == 400
    assert (await rest.ask("DELETE", f"{LAKE}/branches/release-1")).status == 204
    quoted = {"if-match": f'"{found.headers["etag"]}"'}
    assert (await rest.ask("PUT", PROTECTION, [{"pattern": "x"}], headers=quoted)).status == 204
    assert (await rest.ask("GET", PROTECTION)).json == [{"pattern": "x"}]
    assert (await rest.ask("POST", f"{main}/commits", commit)).status == 201
    for pattern in ("ma[in]", "{a,b}", "", "x\\"):
        refused = await rest.ask("PUT", PROTECTION, [{"pattern": pattern}])
        assert refused.status == 400
        assert "pattern" in refused.message


async def test_protections_that_this_interface_does_not_show_are_kept(rest: Rest) -> None:
    service = rest.service
    write, commit, merge = pb.CHANGE_KIND_WRITE, pb.CHANGE_KIND_COMMIT, pb.CHANGE_KIND_MERGE
    force, delete = pb.CHANGE_KIND_FORCE, pb.CHANGE_KIND_DELETE
    kept = pb.Protection(pattern="kept", blocked=[delete], exempt_roles=["Admin"])
    settings = await service.graveler.get_settings(service.admin, "lake")
    await service.graveler.set_rules(
        service.admin,
        "lake",
        protections=[
            kept,
            pb.Protection(pattern="stays", blocked=[write, commit, merge], exempt_roles=["Admin"]),
            pb.Protection(pattern="goes", blocked=[write, commit, force, delete]),
            pb.Protection(pattern="goes-all", blocked=[write, commit]),
            pb.Protection(pattern="more", blocked=[delete], exempt_roles=["Admin"]),
        ],
        hidden_patterns=["tx-*"],
        if_match=settings.etag,
    )
    assert [each["pattern"] for each in (await rest.ask("GET", PROTECTION)).json] == [
        "stays",
        "goes",
        "goes-all",
    ]
    wanted = [{"pattern": "stays"}, {"pattern": "more"}, {"pattern": "new"}]
    assert (await rest.ask("PUT", PROTECTION, wanted)).status == 204
    settings = await service.graveler.get_settings(service.admin, "lake")
    assert list(settings.hidden_patterns) == ["tx-*"]
    found = {each.pattern: each for each in settings.protections}
    assert set(found) == {"kept", "stays", "goes", "more", "new"}
    assert found["kept"] == kept
    assert set(found["stays"].blocked) == {write, commit, merge}
    assert list(found["stays"].exempt_roles) == ["Admin"]
    assert set(found["goes"].blocked) == {delete}
    # Whoever may delete the branch may not write to it for that.
    assert set(found["more"].blocked) == {write, commit, force, delete}
    assert list(found["more"].exempt_roles) == []
    assert set(found["new"].blocked) == {write, commit, force}


async def test_retention_of_commits(rest: Rest) -> None:
    missing = await rest.ask("GET", GC)
    assert (missing.status, "keeps its objects" in missing.message) == (404, True)
    service = rest.service
    other = {"tags": [{"match": "n-*", "keep_days": 9}], "uploads": {"abort_days": 7}}
    found = await service.graveler.get_retention(service.admin, "lake")
    await service.graveler.set_retention(
        service.admin, "lake", json.dumps(other), if_match=found.etag
    )
    rules = {
        "default_retention_days": 21,
        "branches": [
            {"branch_id": "main", "retention_days": 28},
            {"branch_id": "dev", "retention_days": 21},
        ],
    }
    assert (await rest.ask("PUT", GC, rules)).status == 204
    assert (await rest.ask("GET", GC)).json == rules
    stored = json.loads((await service.graveler.get_retention(service.admin, "lake")).rules_json)
    assert stored == {
        **other,
        "branches": [
            {"match": "main", "keep_days": 28},
            {"match": "dev", "keep_days": 21},
            {"match": "*", "keep_days": 21},
        ],
        "detached": {"keep_days": 21},
    }
    assert (await rest.ask("DELETE", GC)).status == 204
    assert (await rest.ask("GET", GC)).status == 404
    assert (await rest.ask("DELETE", GC)).status == 204
    stored = json.loads((await service.graveler.get_retention(service.admin, "lake")).rules_json)
    assert stored == other


@pytest.mark.parametrize(
    ("default", "branches", "part"),
    [
        (21, [("dev", 0)], "1 to"),
        (0, [], "1 to"),
        (-1, [], "1 to"),
        (2**40, [], "2147483647"),
        (7, [("exp-*", 9)], "branch"),
        (7, [("main", 9), ("main", 10)], "two rules"),
        (7, [(f"b{number}", 9) for number in range(100)], "at most 100"),
    ],
)
async def test_retention_that_tarn_cannot_express_is_refused(
    rest: Rest, default: int, branches: list[tuple[str, int]], part: str
) -> None:
    rules = [{"branch_id": name, "retention_days": days} for name, days in branches]
    body = {"default_retention_days": default, "branches": rules}
    refused = await rest.ask("PUT", GC, body)
    assert refused.status == 400
    assert part in refused.message
    assert (await rest.ask("GET", GC)).status == 404


@pytest.mark.parametrize(
    "rules",
    [
        {"branches": [{"match": "*", "keep_days": 7}]},
        {"detached": {"keep_days": 7}},
        {"branches": [{"match": "*", "keep_days": 7}], "detached": {"keep_days": 8}},
        {"branches": [{"match": "main", "keep_days": 7}], "detached": {"keep_days": 7}},
        {"branches": [{"match": "*", "keep_commits": 7}], "detached": {"keep_days": 7}},
        {
            "branches": [{"match": "*", "keep_days": 7}, {"match": "m*", "keep_days": 9}],
            "detached": {"keep_days": 7},
        },
        {
            "branches": [{"match": "*", "keep_days": 7}, {"match": "m", "keep_days": 5}],
            "detached": {"keep_days": 7},
        },
        {
            "branches": [{"match": "*", "except": ["m"], "keep_days": 7}],
            "detached": {"keep_days": 7},
        },
        {
            "branches": [
                {"match": "*", "except": ["m?"], "keep_days": 7},
                {"match": "m?", "keep_days": 5},
            ],
            "detached": {"keep_days": 7},
        },
        {
            "branches": [
                {"match": "*", "keep_days": 7},
                {"match": "m", "except": ["m"], "keep_days": 9},
            ],
            "detached": {"keep_days": 7},
        },
    ],
)
async def test_retention_that_this_interface_cannot_show_is_not_shown_wrongly(
    rest: Rest, rules: dict[str, object]
) -> None:
    service = rest.service
    found = await service.graveler.get_retention(service.admin, "lake")
    await service.graveler.set_retention(
        service.admin, "lake", json.dumps(rules), if_match=found.etag
    )
    refused = await rest.ask("GET", GC)
    assert (refused.status, "tarn retention show lake" in refused.message) == (501, True)


async def test_a_branch_may_keep_its_commits_for_a_shorter_time_than_the_others(rest: Rest) -> None:
    rules = {
        "default_retention_days": 21,
        "branches": [
            {"branch_id": "tmp", "retention_days": 1},
            {"branch_id": "main", "retention_days": 28},
        ],
    }
    assert (await rest.ask("PUT", GC, rules)).status == 204
    assert (await rest.ask("GET", GC)).json == rules
    service = rest.service
    stored = json.loads((await service.graveler.get_retention(service.admin, "lake")).rules_json)
    assert stored["branches"] == [
        {"match": "tmp", "keep_days": 1},
        {"match": "main", "keep_days": 28},
        {"match": "*", "except": ["tmp"], "keep_days": 21},
    ]


async def test_preflights_tell_what_the_caller_may_set(rest: Rest) -> None:
    developer = await caller(rest, "Developer")
    for path in ("branch_protection/set_allowed", "gc/rules/set_allowed"):
        assert (await rest.ask("GET", f"{LAKE}/{path}")).status == 204
        assert (await rest.ask("GET", f"/repositories/nowhere/{path}")).status == 404
        refused = await rest.ask("GET", f"{LAKE}/{path}", caller=developer)
        assert refused.status == 403
        assert rest.audit.records[-1].outcome is Outcome.DENIED
    assert (await rest.ask("GET", "/config/garbage-collection")).json == {"grace_period": 21_600}


async def test_a_repository_may_be_made_read_only(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"name": "sea", "storage_namespace": "s3://sea/x", "read_only": True}
    assert (await rest.ask("POST", "/repositories", body)).json["read_only"] is True
    assert (await rest.ask("GET", "/repositories/sea")).json["read_only"] is True
    branch = {"name": "dev", "source": "main"}
    assert (await rest.ask("POST", "/repositories/sea/branches", branch)).status == 403

    async def failing(*_: Any, **__: Any) -> Any:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "graveler stops")

    monkeypatch.setattr(rest.service.graveler, "set_read_only", failing)
    half = await rest.ask("POST", "/repositories", {**body, "name": "pond"})
    # It exists, so this is no refusal.
    assert (half.status, "pond was created" in half.message) == (500, True)
    assert (await rest.ask("GET", "/repositories/pond")).status == 200


async def test_sample_data_are_committed_on_request(rest: Rest) -> None:
    body = {
        "name": "sea",
        "storage_namespace": "s3://sea/x",
        "sample_data": True,
        "read_only": True,
        "default_branch": "trunk",
    }
    made = await rest.ask("POST", "/repositories", body)
    assert (made.status, made.json["read_only"]) == (201, True)
    listed = (await rest.ask("GET", "/repositories/sea/refs/trunk/objects/ls")).json["results"]
    assert [each["path"] for each in listed] == sorted(SAMPLES)
    readme = await rest.ask("GET", "/repositories/sea/refs/trunk/objects?path=README.md")
    assert (readme.headers["content-type"], readme.body.decode()) == SAMPLES["README.md"]
    assert (await rest.ask("GET", "/repositories/sea/branches/trunk/diff")).json["results"] == []
    log = (await rest.ask("GET", "/repositories/sea/refs/trunk/commits")).json["results"]
    assert [each["message"] for each in log] == ["Add sample data", "Repository created"]
    # Clients take that for success, if the repository may exist already.
    again = await rest.ask("POST", "/repositories", {**body, "read_only": False})
    assert again.status == 409
    listed = (await rest.ask("GET", "/repositories/lake/refs/main/objects/ls")).json["results"]
    assert listed == []


async def test_sample_data_that_fail_are_no_refusal(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: Any, **__: Any) -> Any:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "graveler stops")

    monkeypatch.setattr(rest.service.graveler, "create_commit", failing)
    body = {"name": "sea", "storage_namespace": "s3://sea/x", "sample_data": True}
    half = await rest.ask("POST", "/repositories", body)
    assert (half.status, "sea was created" in half.message) == (500, True)
    assert rest.audit.records[-1].outcome is Outcome.UNKNOWN


async def test_each_change_of_settings_is_audited(rest: Rest) -> None:
    analyst = await caller(rest, "Analyst")
    changes: tuple[tuple[str, str, str, object], ...] = (
        ("setRepositoryMetadata", "POST", METADATA, {"metadata": {}}),
        ("deleteRepositoryMetadata", "DELETE", METADATA, {"keys": []}),
        ("setGCRules", "PUT", GC, {"default_retention_days": 7, "branches": []}),
        ("deleteGCRules", "DELETE", GC, None),
        ("setBranchProtectionRules", "PUT", PROTECTION, []),
    )
    for operation, method, path, body in changes:
        for authorization, status, outcome, user in (
            ("", 204, Outcome.OK, "root"),
            (analyst, 403, Outcome.DENIED, "analyst"),
        ):
            answer = await rest.ask(method, path, body, caller=authorization)
            assert answer.status == status, (operation, answer.body)
            record = rest.audit.records[-1]
            assert (record.operation, record.resource, record.outcome, record.principal) == (
                f"api:{operation}",
                "repository/lake",
                outcome,
                user,
            )
