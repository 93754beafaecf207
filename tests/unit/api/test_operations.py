"""A day's work on metadata, as clients of lakeFS see it."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote

import pytest
from rest_service import Rest

from tarn.core.levels import LEVEL_FIRST, FeatureGate
from tarn.telemetry.audit.record import Outcome
from tarn_api.operations import diffs

LAKE = "/repositories/lake"
MAIN = f"{LAKE}/branches/main"


async def commit(rest: Rest, branch: str = "main", message: str = "m") -> str:
    answer = await rest.ask("POST", f"{LAKE}/branches/{branch}/commits", {"message": message})
    assert answer.status == 201, answer.body
    commit_id: str = answer.json["id"]
    return commit_id


async def test_repositories(rest: Rest) -> None:
    wanted = {"name": "sea", "storage_namespace": "s3://bucket/prefix", "default_branch": "trunk"}
    made = await rest.ask("POST", "/repositories", wanted)
    assert made.status == 201
    assert made.json["id"] == "sea"
    assert made.json["default_branch"] == "trunk"
    # The place is Tarn's choice; clients are shown the one that they named.
    assert made.json["storage_namespace"] == "s3://bucket/prefix"
    behind = await rest.service.graveler.get_repository(rest.service.admin, "sea")
    assert behind.storage_namespace.startswith("local://sea")
    long = {**wanted, "name": "long", "storage_namespace": f"s3://{'x' * 1024}"}
    assert (await rest.ask("POST", "/repositories", long)).status == 400
    # Of a repository that was made otherwise, that is the only one.
    lake = (await rest.ask("GET", "/repositories/lake")).json
    assert lake["storage_namespace"].startswith("local://lake")
    assert made.json["creation_date"] == rest.service.clock.now_us() // 1_000_000
    again = await rest.ask("POST", "/repositories", wanted)
    assert (again.status, again.message) == (409, "error creating repository: not unique")
    found = await rest.ask("GET", "/repositories/sea")
    assert found.json == {**made.json, "read_only": False}
    assert (await rest.ask("GET", "/repositories/sea/metadata")).json == {}
    listed = await rest.ask("GET", "/repositories?amount=1")
    assert [each["id"] for each in listed.json["results"]] == ["lake"]
    assert listed.json["pagination"] == {
        "has_more": True,
        "next_offset": "lake",
        "results": 1,
        "max_per_page": 1000,
    }
    rest_of_it = await rest.ask("GET", "/repositories?after=lake")
    assert [each["id"] for each in rest_of_it.json["results"]] == ["sea"]
    assert rest_of_it.json["pagination"]["has_more"] is False
    assert [{**each, "read_only": False} for each in rest_of_it.json["results"]] == [made.json]
    searched = await rest.ask("GET", "/repositories?search=ea&prefix=s")
    assert [each["id"] for each in searched.json["results"]] == ["sea"]
    gone = await rest.ask("DELETE", "/repositories/sea")
    assert (gone.status, gone.body) == (204, b"")
    assert (await rest.ask("GET", "/repositories/sea")).status == 404


async def test_a_name_or_a_namespace_that_is_none_is_refused_by_its_field(rest: Rest) -> None:
    for body, field in (
        ({"name": "Sea!", "storage_namespace": "s3://a"}, "name"),
        ({"name": "sea", "storage_namespace": "somewhere"}, "storage_namespace"),
        ({"name": "sea"}, "storage_namespace"),
        ({"name": 7, "storage_namespace": "s3://a"}, "name"),
    ):
        answer = await rest.ask("POST", "/repositories", body)
        assert answer.status == 400
        assert field in answer.message


async def test_the_place_that_a_client_names_is_kept_from_the_level_of_this_release(
    rest: Rest,
) -> None:
    for endpoint in rest.service.endpoints:
        if endpoint.descriptor.name == "RepositoryService":
            cast("Any", endpoint.handler)._features = FeatureGate.at(LEVEL_FIRST)
    wanted = {"name": "sea", "storage_namespace": "s3://bucket/prefix"}
    made = await rest.ask("POST", "/repositories", wanted)
    assert made.status == 201
    assert made.json["storage_namespace"].startswith("local://sea")


async def test_branches_and_tags(rest: Rest) -> None:
    head = (await rest.ask("GET", MAIN)).json
    assert head["id"] == "main"
    made = await rest.ask("POST", f"{LAKE}/branches", {"name": "dev", "source": "main"})
    assert (made.status, made.body.decode()) == (201, head["commit_id"])
    assert made.headers["content-type"].startswith("text/html")
    assert (
        await rest.ask("POST", f"{LAKE}/branches", {"name": "dev", "source": "main"})
    ).status == 409
    assert (
        await rest.ask("POST", f"{LAKE}/branches", {"name": "x", "source": "none"})
    ).status == 404
    listed = (await rest.ask("GET", f"{LAKE}/branches?prefix=d")).json
    assert listed["results"] == [{"id": "dev", "commit_id": head["commit_id"]}]
    assert [
        each["id"] for each in (await rest.ask("GET", f"{LAKE}/branches?after=dev")).json["results"]
    ] == ["main"]
    tag = await rest.ask("POST", f"{LAKE}/tags", {"id": "v1", "ref": "dev"})
    assert (tag.status, tag.json) == (201, {"id": "v1", "commit_id": head["commit_id"]})
    assert (await rest.ask("GET", f"{LAKE}/tags/v1")).json == tag.json
    assert (await rest.ask("GET", f"{LAKE}/tags")).json["results"] == [tag.json]
    assert (await rest.ask("DELETE", f"{LAKE}/tags/v1")).status == 204
    assert (await rest.ask("GET", f"{LAKE}/tags/v1")).status == 404
    assert (await rest.ask("DELETE", f"{LAKE}/branches/dev")).status == 204
    assert (await rest.ask("DELETE", f"{LAKE}/branches/dev")).status == 404


async def test_objects(rest: Rest) -> None:
    for path, size in (("a", 1), ("x/1", 2), ("x/2", 3), ("ü n", 4)):
        await rest.service.put(path, size)
    objects = f"{LAKE}/refs/main/objects"
    stat = (await rest.ask("GET", f"{objects}/stat?path=x%2F1")).json
    assert (stat["path"], stat["path_type"], stat["size_bytes"]) == ("x/1", "object", 2)
    assert stat["physical_address"].startswith("local://lake")
    assert stat["checksum"] == "0" * 32
    head = await rest.ask("HEAD", f"{objects}?path=x/1")
    assert (head.status, head.headers["content-length"]) == (200, "2")
    assert head.headers["etag"] == f'"{"0" * 32}"'
    assert (await rest.ask("HEAD", f"{objects}?path=none")).status == 404
    listed = (await rest.ask("GET", f"{objects}/ls?delimiter=/&amount=2")).json
    assert [(each["path"], each["path_type"]) for each in listed["results"]] == [
        ("a", "object"),
        ("x/", "common_prefix"),
    ]
    assert listed["pagination"]["next_offset"] == "x/"
    behind = (await rest.ask("GET", f"{objects}/ls?delimiter=/&after=x%2F")).json
    assert [each["path"] for each in behind["results"]] == ["ü n"]
    changes = f"{MAIN}/diff"
    assert [
        (each["type"], each["path"], each["path_type"])
        for each in (await rest.ask("GET", f"{changes}?delimiter=/")).json["results"]
    ] == [
        ("added", "a", "object"),
        ("prefix_changed", "x/", "common_prefix"),
        ("added", "ü n", "object"),
    ]
    assert (await rest.ask("DELETE", f"{MAIN}/objects?path=a")).status == 204
    assert (await rest.ask("DELETE", f"{MAIN}/objects?path=never")).status == 204
    gone = await rest.ask("POST", f"{MAIN}/objects/delete", {"paths": ["x/1", "never"]})
    assert gone.json == {"errors": []}
    many = {"paths": [f"{each}" for each in range(1001)]}
    assert (await rest.ask("POST", f"{MAIN}/objects/delete", many)).status == 400
    assert [each["path"] for each in (await rest.ask("GET", f"{objects}/ls")).json["results"]] == [
        "x/2",
        "ü n",
    ]
    reset = {"type": "common_prefix", "path": "x/"}
    assert (await rest.ask("PUT", MAIN, reset)).status == 204
    assert (await rest.ask("PUT", MAIN, {"type": "object"})).status == 400
    assert [each["path"] for each in (await rest.ask("GET", f"{objects}/ls")).json["results"]] == [
        "ü n"
    ]
    assert (await rest.ask("PUT", MAIN, {"type": "reset"})).status == 204
    assert (await rest.ask("GET", f"{objects}/ls")).json["results"] == []


async def test_commits_and_their_history(rest: Rest) -> None:
    ids = []
    for n in range(5):
        await rest.service.put(f"{n}", n)
        ids.append(await commit(rest, message=f"c{n}"))
    empty = await rest.ask("POST", f"{MAIN}/commits", {"message": "nothing"})
    assert empty.status == 400
    assert empty.message == "commit: no changes"
    one = (await rest.ask("GET", f"{LAKE}/commits/{ids[1]}")).json
    assert (one["id"], one["parents"], one["message"]) == (ids[1], [ids[0]], "c1")
    assert (one["committer"], one["metadata"]) == ("root", {})
    for ref in ("nowhere", "0" * 64, "main~99"):
        missing = await rest.ask("GET", f"{LAKE}/commits/{ref}")
        assert (missing.status, missing.message) == (404, "commit not found")
    missing = await rest.ask("GET", "/repositories/nowhere/commits/main")
    assert (missing.status, missing.message) == (404, "repository not found")
    log = f"{LAKE}/refs/main/commits"
    first = (await rest.ask("GET", f"{log}?amount=2")).json
    assert [each["message"] for each in first["results"]] == ["c4", "c3"]
    offset = first["pagination"]["next_offset"]
    second = (await rest.ask("GET", f"{log}?amount=2&after={offset}")).json
    assert [each["message"] for each in second["results"]] == ["c2", "c1"]
    by_id = (await rest.ask("GET", f"{log}?amount=2&after={ids[3]}")).json
    assert by_id["results"] == second["results"]
    on = by_id["pagination"]["next_offset"]
    third = (await rest.ask("GET", f"{log}?amount=2&after={on}")).json
    assert [each["message"] for each in third["results"]] == ["c0", "Repository created"]
    assert [each["committer"] for each in third["results"]] == ["root", ""]
    assert third["pagination"]["has_more"] is False
    limited = (await rest.ask("GET", f"{log}?amount=2&limit=true")).json
    assert limited["pagination"]["has_more"] is False
    stopped = (await rest.ask("GET", f"{log}?stop_at={ids[3]}")).json
    assert [each["message"] for each in stopped["results"]] == ["c4", "c3"]
    of_path = (await rest.ask("GET", f"{log}?objects=2&objects=4")).json
    assert [each["message"] for each in of_path["results"]] == ["c4", "c2"]
    nowhere = await rest.ask("GET", f"{log}?after={'0' * 64}")
    assert nowhere.status == 404


async def test_merges_conflicts_reverts_and_picks(rest: Rest) -> None:
    base = (await rest.ask("GET", MAIN)).json["commit_id"]
    await rest.ask("POST", f"{LAKE}/branches", {"name": "dev", "source": "main"})
    await rest.service.put("a", 1, "dev")
    dev = await commit(rest, "dev")
    merge = f"{LAKE}/refs/dev/merge/main"
    assert (await rest.ask("GET", merge)).json == {
        "source_commit_id": dev,
        "destination_commit_id": base,
        "base_commit_id": base,
    }
    diff = (await rest.ask("GET", f"{LAKE}/refs/main/diff/dev?include_right_stats=true")).json
    assert [(each["type"], each["path"], each["size_bytes"]) for each in diff["results"]] == [
        ("added", "a", 1)
    ]
    assert diff["results"][0]["right"]["checksum"] == "0" * 32
    merged = await rest.ask("POST", merge)
    assert merged.status == 200
    reference = merged.json["reference"]
    nothing = await rest.ask("POST", merge, {})
    assert nothing.status == 400
    assert nothing.message.startswith("no changes")
    await rest.service.put("a", 2, "dev")
    await commit(rest, "dev")
    await rest.service.put("a", 3)
    dirty = await rest.ask("POST", merge, {})
    assert dirty.status == 400
    await commit(rest)
    conflict = await rest.ask("POST", merge, {"message": "m"})
    assert conflict.status == 409
    assert conflict.json["reference"] == ""
    assert "a" in conflict.message
    assert (await rest.ask("POST", merge, {"strategy": "ours"})).status == 400
    won = await rest.ask("POST", merge, {"strategy": "source-wins"})
    assert won.status == 200
    assert await rest.service.size("main", "a") == 2
    revert = {"ref": won.json["reference"], "parent_number": 1}
    assert (await rest.ask("POST", f"{MAIN}/revert", revert)).status == 204
    assert await rest.service.size("main", "a") == 3
    await rest.ask("POST", f"{LAKE}/branches", {"name": "pick", "source": reference})
    picked = await rest.ask(
        "POST",
        f"{LAKE}/branches/pick/cherry-pick",
        {"ref": "dev", "commit_overrides": {"message": "picked"}},
    )
    assert (picked.status, picked.json["message"]) == (201, "picked")


async def test_a_merge_is_described_as_clients_expect(rest: Rest) -> None:
    await rest.ask("POST", f"{LAKE}/branches", {"name": "dev", "source": "main"})
    await rest.service.put("a", 1, "dev")
    body = {"message": "with metadata", "metadata": {"k": "v"}, "date": 1_000_000_000}
    dated = (await rest.ask("POST", f"{LAKE}/branches/dev/commits", body)).json
    assert dated["creation_date"] == 1_000_000_000
    assert (await rest.ask("GET", f"{LAKE}/commits/{dated['id']}")).json == dated
    merge = f"{LAKE}/refs/dev/merge/main"
    merged = (await rest.ask("POST", merge, {"metadata": {"x": "y"}})).json["reference"]
    made = (await rest.ask("GET", f"{LAKE}/commits/{merged}")).json
    assert made["message"] == "Merge 'dev' into 'main'"
    assert made["metadata"] == {"x": "y", ".lakefs.merge.strategy": "default"}
    ref = {"ref": merged, "parent_number": 0}
    for operation in ("revert", "cherry-pick"):
        refused = await rest.ask("POST", f"{MAIN}/{operation}", ref)
        assert refused.status == 409
        assert "parent_number" in refused.message
    assert (await rest.ask("POST", f"{MAIN}/revert", {**ref, "parent_number": 3})).status == 400
    undone = {"ref": merged, "parent_number": 1, "commit_overrides": {"metadata": {"m": "n"}}}
    assert (await rest.ask("POST", f"{MAIN}/revert", undone)).status == 204
    head = (await rest.ask("GET", f"{LAKE}/commits/main")).json
    assert head["message"] == f"Revert {merged}"
    assert head["metadata"]["m"] == "n"
    pick = {"ref": dated["id"], "parent_number": 1, "commit_overrides": {"metadata": {"m": "n"}}}
    picked = (await rest.ask("POST", f"{MAIN}/cherry-pick", pick)).json
    assert picked["message"] == "with metadata"
    del picked["metadata"]["tarn.cherry_picked_from"]
    assert picked["metadata"] == {
        "k": "v",
        "m": "n",
        "cherry-pick-origin": dated["id"],
        "cherry-pick-committer": "root",
    }
    await rest.service.put("b", 1, "dev")
    await commit(rest, "dev")
    for strategy in ("source-wins", "dest-wins"):
        await rest.service.put(strategy, 1, "dev")
        await commit(rest, "dev")
        wish = {"strategy": strategy, "squash_merge": True}
        squashed = (await rest.ask("POST", merge, wish)).json["reference"]
        made = (await rest.ask("GET", f"{LAKE}/commits/{squashed}")).json
        assert made["metadata"][".lakefs.merge.strategy"] == strategy
        assert len(made["parents"]) == 1


async def test_dates_that_are_none_are_refused(rest: Rest) -> None:
    for date in (-1, 2**63, 253_402_300_800):
        answer = await rest.ask("POST", f"{MAIN}/commits", {"message": "m", "date": date})
        assert answer.status == 400
        assert "date" in answer.message


async def test_the_default_branch_is_not_deleted(rest: Rest) -> None:
    refused = await rest.ask("DELETE", MAIN)
    assert refused.status == 403
    assert "default branch" in refused.message
    assert rest.audit.records[-1].outcome is Outcome.DENIED


async def test_a_hard_reset_discards_uncommitted_changes_only_by_force(rest: Rest) -> None:
    first = (await rest.ask("GET", MAIN)).json["commit_id"]
    await rest.service.put("a", 1)
    await commit(rest)
    await rest.service.put("b", 1)
    reset = f"{MAIN}/hard_reset?ref={first}"
    dirty = await rest.ask("PUT", reset)
    assert (dirty.status, "uncommitted" in dirty.message) == (400, True)
    assert (await rest.ask("PUT", f"{reset}&force=true")).status == 204
    assert (await rest.ask("GET", MAIN)).json["commit_id"] == first
    assert (await rest.ask("GET", f"{MAIN}/diff")).json["results"] == []
    assert (await rest.ask("PUT", f"{MAIN}/hard_reset?ref=nowhere")).status == 404


async def test_differences_show_the_conflicts_that_a_merge_would_have(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "z" * 1023 + "\0"
    for path in ("both", "deleted", "equal", "ours", "sub/both", "theirs", long):
        await rest.service.put(path, 1)
    await commit(rest)
    await rest.ask("POST", f"{LAKE}/branches", {"name": "dev", "source": "main"})
    for branch, size in (("main", 2), ("dev", 3)):
        for path in ("both", "sub/both", "added", "\ue000", long):
            await rest.service.put(path, size, branch)
        await rest.service.put("equal", 5, branch)
    for number in range(6):
        await rest.service.put(f"f{number}", 2)
    await rest.service.put("ours", 2)
    await rest.service.put("deleted", 2)
    await rest.service.put("theirs", 2, "dev")
    await rest.ask("DELETE", f"{LAKE}/branches/dev/objects?path=deleted")
    await commit(rest)
    await commit(rest, "dev")
    listing = f"{LAKE}/refs/main/diff/dev"
    shown: list[tuple[str, str]] = []
    # Small pages of the other side, so that it is not read in one call.
    for amount_max in (1000, 1, 2):
        monkeypatch.setattr(diffs, "AMOUNT_MAX", amount_max)
        shown = [
            (each["path"], each["type"])
            for each in (await rest.ask("GET", listing)).json["results"]
        ]
        assert shown == [
            ("added", "conflict"),
            ("both", "conflict"),
            ("deleted", "conflict"),
            ("sub/both", "conflict"),
            ("theirs", "changed"),
            (long, "conflict"),
            ("\ue000", "conflict"),
        ]
    conflict = await rest.ask("POST", f"{LAKE}/refs/dev/merge/main", {})
    assert "6 paths" in conflict.message
    two = (await rest.ask("GET", f"{listing}?type=two_dot")).json["results"]
    assert {each["type"] for each in two} == {"changed", "removed"}
    paged, after = [], ""
    while True:
        page = (await rest.ask("GET", f"{listing}?amount=1&after={quote(after)}")).json
        assert len(page["results"]) == 1
        paged.append((page["results"][0]["path"], page["results"][0]["type"]))
        after = page["pagination"]["next_offset"]
        if not page["pagination"]["has_more"]:
            break
    assert paged == shown
    rolled = (await rest.ask("GET", f"{listing}?delimiter=/&prefix=sub")).json["results"]
    assert [(each["path"], each["type"]) for each in rolled] == [("sub/", "prefix_changed")]


async def test_pages_of_rolled_up_differences_repeat_nothing(rest: Rest) -> None:
    for path in ("a/1", "a/2", "b", "c/1", "c/2", "d/1"):
        await rest.service.put(path, 1)
    seen, after = [], ""
    while True:
        page = (await rest.ask("GET", f"{MAIN}/diff?delimiter=/&amount=2&after={after}")).json
        seen.append([each["path"] for each in page["results"]])
        after = page["pagination"]["next_offset"].replace("/", "%2F")
        if not page["pagination"]["has_more"]:
            break
    assert seen == [["a/", "b"], ["c/", "d/"]]


async def test_configuration_version_and_sign_in(rest: Rest) -> None:
    config = (await rest.ask("GET", "/config")).json
    assert config["storage_config"]["blockstore_type"] == "local"
    assert config["storage_config"]["pre_sign_support"] is False
    assert config["version_config"] == (await rest.ask("GET", "/config/version")).json
    assert config["storage_config"] == (await rest.ask("GET", "/config/storage")).json
    assert (await rest.ask("GET", "/healthcheck", caller=None)).status == 204
    state = (await rest.ask("GET", "/setup_lakefs", caller=None)).json
    assert state["state"] == "initialized"
    assert state["login_config"]["RBAC"] == "none"  # clients then manage no policies
    key, secret = rest.service.admin_key
    body = {"access_key_id": key, "secret_access_key": secret}
    answer = await rest.ask("POST", "/auth/login", body, caller=None)
    assert answer.json["token_expiration"] > rest.service.clock.now_us() // 1_000_000
    me = await rest.ask("GET", "/user", caller=f"Bearer {answer.json['token']}")
    assert me.json["user"]["id"] == "root"
    wrong = await rest.ask("POST", "/auth/login", {**body, "secret_access_key": "x"}, caller=None)
    assert (wrong.status, wrong.message) == (401, "error authenticating request")
    stats = {"events": [{"class": "a", "name": "b", "count": 1}]}
    assert (await rest.ask("POST", "/statistics", stats)).status == 204
