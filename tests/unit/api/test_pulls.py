"""Pull requests, as clients of lakeFS see them."""

from __future__ import annotations

from rest_service import Rest

from tarn.core.change_kind import PROTECTABLE
from tarn_proto.graveler.v1 import settings_service_pb2 as settings_pb

LAKE = "/repositories/lake"
PULLS = f"{LAKE}/pulls"


async def opened(rest: Rest, branch: str) -> str:
    await rest.ask("POST", f"{LAKE}/branches", {"name": branch, "source": "main"})
    await rest.service.put(f"of-{branch}", 1, branch)
    await rest.ask("POST", f"{LAKE}/branches/{branch}/commits", {"message": "m"})
    wanted = {"title": f"Merge {branch}", "source_branch": branch, "destination_branch": "main"}
    made = await rest.ask("POST", PULLS, wanted)
    assert made.status == 201, made.body
    again = await rest.ask("POST", PULLS, wanted)
    assert again.status == 409
    return str(made.json["id"])


async def test_a_pull_request_from_its_opening_to_its_merge(rest: Rest) -> None:
    pull_id = await opened(rest, "dev")
    found = (await rest.ask("GET", f"{PULLS}/{pull_id}")).json
    assert found == {
        "id": "1",
        "status": "open",
        "title": "Merge dev",
        "description": "",
        "author": "root",
        "source_branch": "dev",
        "destination_branch": "main",
        "creation_date": found["creation_date"],
    }
    assert (await rest.ask("PATCH", f"{PULLS}/1", {"description": "why"})).status == 200
    assert (await rest.ask("PATCH", f"{PULLS}/1", {"status": "closed"})).status == 200
    assert (await rest.ask("PUT", f"{PULLS}/1/merge")).status == 412
    closed = (await rest.ask("GET", f"{PULLS}/1")).json
    assert (closed["status"], closed["description"]) == ("closed", "why")
    assert closed["closed_date"] >= closed["creation_date"]
    assert (await rest.ask("PATCH", f"{PULLS}/1", {"status": "merged"})).status == 400
    assert (await rest.ask("PATCH", f"{PULLS}/1", {"status": "open"})).status == 200
    merged = await rest.ask("PUT", f"{PULLS}/1/merge")
    assert merged.status == 200
    again = await rest.ask("PUT", f"{PULLS}/1/merge")
    assert again.json == merged.json
    found = (await rest.ask("GET", f"{PULLS}/1")).json
    assert (found["status"], found["merged_commit_id"]) == ("merged", merged.json["reference"])
    assert (await rest.ask("GET", f"{PULLS}/2")).status == 404


async def test_lists_have_filters_and_pages(rest: Rest) -> None:
    for name in ("a", "b", "c"):
        await opened(rest, name)
    await rest.ask("PATCH", f"{PULLS}/2", {"status": "closed"})
    await rest.ask("PUT", f"{PULLS}/1/merge")

    async def ids(query: str) -> list[str]:
        answer = await rest.ask("GET", f"{PULLS}?{query}")
        assert answer.status == 200
        return [each["id"] for each in answer.json["results"]]

    assert await ids("") == ["3", "2", "1"]
    assert await ids("status=open") == ["3"]
    assert await ids("status=closed") == ["2", "1"]
    assert await ids("prefix=2") == ["2"]
    page = (await rest.ask("GET", f"{PULLS}?amount=2")).json
    assert page["pagination"]["has_more"]
    assert page["pagination"]["next_offset"] == "2"
    assert await ids("amount=2&after=2") == ["1"]


async def test_a_conflict_is_409_with_an_empty_reference(rest: Rest) -> None:
    await opened(rest, "dev")
    await rest.service.put("of-dev", 2, "main")
    await rest.ask("POST", f"{LAKE}/branches/main/commits", {"message": "m"})
    answer = await rest.ask("PUT", f"{PULLS}/1/merge")
    assert (answer.status, answer.json["reference"]) == (409, "")


async def test_a_protection_that_asks_for_approvals_is_shown_and_stays(rest: Rest) -> None:
    await opened(rest, "dev")
    graveler, admin = rest.service.graveler, rest.service.admin
    kinds = [getattr(settings_pb, f"CHANGE_KIND_{each.name}") for each in PROTECTABLE]
    rule = settings_pb.ReviewRule(approval_count=1, stale=settings_pb.STALE_APPROVALS_IGNORE)
    protection = settings_pb.Protection(pattern="main", blocked=kinds, review=rule)
    etag = (await graveler.get_settings(admin, "lake")).etag
    await graveler.set_rules(
        admin, "lake", protections=[protection], hidden_patterns=[], if_match=etag
    )
    assert (await rest.ask("PUT", f"{PULLS}/1/merge")).status == 412
    at = f"{LAKE}/settings/branch_protection"
    assert (await rest.ask("GET", at)).json == [{"pattern": "main"}]
    assert (await rest.ask("PUT", at, [])).status == 400
    assert (await rest.ask("PUT", at, [{"pattern": "main"}, {"pattern": "x"}])).status == 204
    found = await graveler.get_settings(admin, "lake")
    assert found.protections[0] == protection
