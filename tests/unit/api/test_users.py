"""Users and key pairs, as clients of lakeFS see them."""

from __future__ import annotations

import asyncio

from rest_service import Rest, basic

from tarn.telemetry.audit.record import Outcome
from tarn_api.endpoint import OWN_BASE

USERS = "/auth/users"


async def caller(rest: Rest, user_id: str) -> str:
    """Returns the header `Authorization` of a new key pair of a user."""
    made = await rest.ask("POST", f"{USERS}/{user_id}/credentials")
    assert made.status == 201
    return basic(made.json["access_key_id"], made.json["secret_access_key"])


async def test_users_are_made_listed_and_deleted(rest: Rest) -> None:
    made = await rest.ask("POST", USERS, {"id": "ann"})
    now = rest.service.clock.now_us() // 1_000_000
    ann = {"id": "ann", "creation_date": now, "friendly_name": "ann"}
    assert (made.status, made.json) == (201, ann)
    assert (await rest.ask("POST", USERS, {"id": "ann"})).status == 409
    assert (await rest.ask("POST", USERS, {"id": "a/b"})).status == 400
    assert (await rest.ask("POST", USERS)).status == 400
    assert (await rest.ask("POST", USERS, {"id": "bob", "invite_user": True})).status == 501
    assert (await rest.ask("GET", f"{USERS}/ann")).json == ann
    assert (await rest.ask("GET", f"{USERS}/bob")).status == 404
    for user_id in ("abe", "bob"):
        await rest.ask("POST", USERS, {"id": user_id})
    page = (await rest.ask("GET", f"{USERS}?amount=1&prefix=a")).json
    assert [each["id"] for each in page["results"]] == ["abe"]
    assert page["pagination"]["next_offset"] == "abe"
    page = (await rest.ask("GET", f"{USERS}?amount=1&prefix=a&after=abe")).json
    assert ([each["id"] for each in page["results"]], page["pagination"]["has_more"]) == (
        ["ann"],
        False,
    )
    assert (await rest.ask("DELETE", f"{USERS}/ann")).status == 204
    assert (await rest.ask("DELETE", f"{USERS}/ann")).status == 404
    # Nobody locks the installation.
    assert (await rest.ask("DELETE", f"{USERS}/root")).status == 403


async def test_a_new_user_may_do_nothing_until_it_gets_a_role(rest: Rest) -> None:
    await rest.ask("POST", USERS, {"id": "ann"})
    ann = await caller(rest, "ann")
    assert (await rest.ask("GET", "/user", caller=ann)).json["user"]["id"] == "ann"
    assert (await rest.ask("GET", "/repositories", caller=ann)).status == 403
    assert (await rest.ask("GET", "/repositories/lake", caller=ann)).status == 403
    await rest.service.auth.update_user_roles(rest.service.admin, "ann", ["Analyst"])
    rest.service.clock.advance(10)  # services/auth/README.md
    assert (await rest.ask("GET", "/repositories/lake", caller=ann)).status == 200


async def test_key_pairs_belong_to_the_user_of_the_path(rest: Rest) -> None:
    for user_id in ("ann", "bob"):
        await rest.ask("POST", USERS, {"id": user_id})
    pairs = f"{USERS}/ann/credentials"
    made = [(await rest.ask("POST", pairs)).json for _ in range(3)]
    ids = sorted(each["access_key_id"] for each in made)
    first = (await rest.ask("GET", f"{pairs}?amount=2")).json
    assert [each["access_key_id"] for each in first["results"]] == ids[:2]
    assert first["pagination"]["next_offset"] == ids[1]
    assert "secret_access_key" not in first["results"][0]
    last = (await rest.ask("GET", f"{pairs}?amount=2&after={ids[1]}")).json
    assert [each["access_key_id"] for each in last["results"]] == ids[2:]
    assert (await rest.ask("GET", f"{pairs}?prefix=NONE")).json["results"] == []
    one = (await rest.ask("GET", f"{pairs}/{ids[0]}")).json
    assert one == first["results"][0]
    # As another user's, it is not there.
    assert (await rest.ask("GET", f"{USERS}/bob/credentials/{ids[0]}")).status == 404
    assert (await rest.ask("DELETE", f"{USERS}/bob/credentials/{ids[0]}")).status == 404
    assert (await rest.ask("DELETE", f"{pairs}/{ids[0]}")).status == 204
    assert (await rest.ask("DELETE", f"{pairs}/{ids[0]}")).status == 404
    for path in (f"{USERS}/none/credentials", f"{USERS}/none/credentials/x"):
        assert (await rest.ask("GET", path)).status == 404
    assert (await rest.ask("POST", f"{USERS}/none/credentials")).status == 404
    key, _ = rest.service.admin_key
    # The key of the call stays.
    assert (await rest.ask("DELETE", f"{USERS}/root/credentials/{key}")).status == 403


async def test_a_user_manages_its_own_key_pairs_and_no_others(rest: Rest) -> None:
    for user_id in ("ann", "bob"):
        await rest.ask("POST", USERS, {"id": user_id})
    ann = await caller(rest, "ann")
    assert (await rest.ask("POST", f"{USERS}/ann/credentials", caller=ann)).status == 201
    assert (await rest.ask("GET", f"{USERS}/ann/credentials", caller=ann)).status == 200
    assert (await rest.ask("GET", f"{USERS}/bob", caller=ann)).status == 403
    refused = await rest.ask("POST", f"{USERS}/bob/credentials", caller=ann)
    assert refused.status == 403
    record = rest.audit.records[-1]
    assert (record.operation, record.resource, record.outcome, record.principal) == (
        "api:createCredentials",
        "user/bob",
        Outcome.DENIED,
        "ann",
    )


async def test_a_new_user_is_named_in_the_audit_record(rest: Rest) -> None:
    await rest.ask("POST", USERS, {"id": "ann"})
    record = rest.audit.records[-1]
    assert (record.operation, record.resource, record.outcome) == (
        "api:createUser",
        "user/ann",
        Outcome.OK,
    )


async def test_the_rpc_as_json_has_the_last_uses_of_key_pairs(rest: Rest) -> None:
    made = (await rest.ask("POST", f"{USERS}/root/credentials")).json["access_key_id"]
    used = rest.service.admin_key[0]
    rest.service.clock.advance(31)
    for _ in range(100):
        await asyncio.sleep(0)
    path, body = "/tarn.auth.v1.UserService/ListCredentials", {"userId": "root"}
    answer = await rest.ask("POST", path, body, base=OWN_BASE)
    found = {each["accessKeyId"]: each for each in answer.json["credentials"]}
    assert found[used]["useKind"] in ("rest", "rpc")
    assert found[used]["useTime"] >= found[used]["createTime"]
    assert not {"useKind", "useTime"} & set(found[made])
