"""What slows callers down: rates of users and repositories, failed sign-ins of an address, turns when all is busy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from rest_service import FAILED_SIGN_INS, Answer, Rest, basic, running_rest
from tests.support.clock import ManualClock

from tarn.core.quota import Limits, QuotaKind
from tarn.gate import addresses
from tarn.gate.request_queue import LIMIT_MIN, WAIT_MAX_S
from tarn_api.endpoint import _PUBLIC_REQUESTS, OWN_BASE
from tarn_proto.auth.v1.session_key_service_pb2 import CreateSessionKeyRequest, Permission

LAKE = "/repositories/lake"
WRONG = basic("TARNX", "wrong")


@pytest.fixture
async def rest(tmp_path: Path) -> AsyncIterator[Rest]:
    async with running_rest(tmp_path, requests_max=200) as running:
        yield running


def limit(rest: Rest, kind: QuotaKind, name: str, **limits: int) -> None:
    rest.rates._known[kind, name] = Limits(**limits)
    rest.rates.is_on = True


def slowed(answer: Answer) -> bool:
    if answer.status != 429:
        return False
    assert int(answer.headers["retry-after"]) >= 1
    return True


async def test_requests_count_against_the_quota_of_their_user_and_repository(rest: Rest) -> None:
    limit(rest, QuotaKind.USER, "root", requests_per_second=3)
    answers = [await rest.ask("GET", LAKE) for _ in range(4)]
    assert [each.status for each in answers] == [200, 200, 200, 429]
    assert slowed(answers[-1])
    assert answers[-1].message.startswith("user root may have 3 requests_per_second")
    rest.service.clock.advance(1)
    assert (await rest.ask("GET", LAKE)).status == 200
    limit(rest, QuotaKind.USER, "root")
    limit(rest, QuotaKind.REPOSITORY, "lake", requests_per_second=1)
    assert [(await rest.ask("GET", LAKE)).status for _ in range(2)] == [200, 429]
    assert (await rest.ask("GET", "/repositories")).status == 200
    throttled = {tuple(each.values()): n for each, n in rest.meters.samples("api.throttled")}
    assert throttled["user", "requests_per_second"] == 1
    assert throttled["repository", "requests_per_second"] == 1


async def test_the_quota_is_the_one_that_s3_requests_use(rest: Rest) -> None:
    """One set of buckets for all endpoints of a process."""
    limit(rest, QuotaKind.USER, "root", requests_per_second=2)
    assert rest.rates.take("root", "lake") is None  # as the gateway does
    assert [(await rest.ask("GET", LAKE)).status for _ in range(2)] == [200, 429]


async def test_a_request_that_is_refused_by_a_rate_changes_nothing(rest: Rest) -> None:
    limit(rest, QuotaKind.USER, "root", requests_per_second=1)
    await rest.ask("GET", LAKE)
    body = {"name": "dev", "source": "main"}
    assert slowed(await rest.ask("POST", f"{LAKE}/branches", body))
    rest.service.clock.advance(1)
    assert (await rest.ask("GET", f"{LAKE}/branches/dev")).status == 404


async def test_bytes_of_a_request_count_against_the_next_one(rest: Rest) -> None:
    limit(rest, QuotaKind.USER, "root", bytes_per_second=100)
    body = {"name": "dev", "source": "main", "x": "y" * 1000}
    assert (await rest.ask("POST", f"{LAKE}/branches", body)).status == 201
    assert slowed(await rest.ask("GET", LAKE))
    rest.service.clock.advance(15)
    assert (await rest.ask("GET", LAKE)).status == 200


async def test_whoever_may_do_nothing_in_a_repository_uses_none_of_its_rate(rest: Rest) -> None:
    service = rest.service
    elsewhere = Permission(actions=["ReadRepo"], resources=["repository/lake2/*"])
    made = await service.auth.create_session_key(
        service.admin, CreateSessionKeyRequest(permissions=[elsewhere])
    )
    session = await service.auth.log_in(
        service.anonymous,
        made.session_key.access_key_id,
        made.secret_access_key,
        now_us=service.clock.now_us(),
        nonce=bytes(16),
        session_token=made.session_token,
    )
    eve = f"Bearer {session.grant.caller_token}"
    limit(rest, QuotaKind.REPOSITORY, "lake", requests_per_second=1)
    for _ in range(3):
        assert (await rest.ask("GET", LAKE, caller=eve)).status == 403
    assert (await rest.ask("GET", LAKE)).status == 200


async def failing(rest: Rest, count: int, **how: Any) -> list[int]:
    found = []
    for number in range(count):
        caller = basic(f"TARNX{number}", "wrong")
        found.append((await rest.ask("GET", LAKE, caller=caller, **how)).status)
    return found


async def test_an_address_that_fails_to_sign_in_is_slowed_down_before_auth_is_asked(
    rest: Rest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await failing(rest, FAILED_SIGN_INS) == [401] * FAILED_SIGN_INS

    async def never(*_: object, **__: object) -> Any:
        raise AssertionError("auth was asked")

    log_in = rest.service.auth.log_in
    monkeypatch.setattr(rest.service.auth, "log_in", never)
    assert slowed(await rest.ask("GET", LAKE, caller=WRONG))
    key, secret = rest.service.admin_key
    body = {"access_key_id": key, "secret_access_key": secret}
    assert slowed(await rest.ask("POST", "/auth/login", body, caller=None))
    assert slowed(await rest.ask("GET", LAKE, caller="Bearer x"))
    monkeypatch.setattr(rest.service.auth, "log_in", log_in)
    # Another address is not concerned, and soon this one is not.
    assert (await rest.ask("GET", LAKE, caller=WRONG, remote="192.0.2.2")).status == 401
    rest.service.clock.advance(1)
    assert (await rest.ask("GET", LAKE)).status == 200


async def test_logins_with_wrong_pairs_count_as_failures(rest: Rest) -> None:
    body = {"access_key_id": "TARNX", "secret_access_key": "wrong"}
    found = [
        (await rest.ask("POST", "/auth/login", body, caller=None)).status
        for _ in range(FAILED_SIGN_INS + 1)
    ]
    assert found == [401] * FAILED_SIGN_INS + [429]


async def test_a_pair_that_has_signed_in_and_a_browser_are_not_slowed_by_failures_of_others(
    rest: Rest,
) -> None:
    assert (await rest.ask("GET", LAKE)).status == 200
    key, secret = rest.service.admin_key
    body = {"access_key_id": key, "secret_access_key": secret}
    here = {"sec-fetch-site": "same-origin"}
    answer = await rest.ask("POST", "/auth/login", body, caller=None, headers=here)
    here["cookie"] = answer.headers["set-cookie"].partition(";")[0]
    assert 429 in await failing(rest, FAILED_SIGN_INS + 1)
    assert (await rest.ask("GET", LAKE)).status == 200
    assert (await rest.ask("GET", LAKE, caller=None, headers=here)).status == 200


async def test_cookies_that_are_none_are_slowed_down_too(rest: Rest) -> None:
    found = []
    for number in range(21):
        headers = {"cookie": f"__Host-tarn={number}"}
        found.append((await rest.ask("GET", LAKE, caller=None, headers=headers)).status)
    assert found == [401] * 20 + [429]


async def test_addresses_of_one_network_of_ipv6_are_one(rest: Rest) -> None:
    await failing(rest, FAILED_SIGN_INS, remote="2001:db8:0:1::1")
    assert (await rest.ask("GET", LAKE, caller=WRONG, remote="2001:db8:0:1:f::2")).status == 429
    assert (await rest.ask("GET", LAKE, caller=WRONG, remote="2001:db8:0:2::1")).status == 401


async def test_requests_without_credentials_have_a_rate(rest: Rest) -> None:
    for _ in range(_PUBLIC_REQUESTS):
        assert (await rest.ask("GET", "/setup_lakefs", caller=None)).status == 200
    assert slowed(await rest.ask("GET", "/setup_lakefs", caller=None))
    assert (await rest.ask("GET", "/healthcheck", caller=None)).status == 204
    assert (await rest.ask("GET", LAKE)).status == 200


@pytest.mark.parametrize("caller", [None, "Basic !!", "Digest x"])
async def test_requests_that_name_no_caller_have_the_same_rate(
    rest: Rest, caller: str | None
) -> None:
    """Also where they are refused: each costs a line of the log."""
    for _ in range(_PUBLIC_REQUESTS):
        assert (await rest.ask("GET", LAKE, caller=caller)).status == 401
    assert slowed(await rest.ask("GET", LAKE, caller=caller))
    assert slowed(await rest.ask("GET", "/setup_lakefs", caller=None))
    path = f"{OWN_BASE}/tarn.graveler.v1.ReflogService/ListReflog"
    assert slowed(await rest.ask("POST", path, {}, caller=caller, base=""))
    assert (await rest.ask("GET", LAKE, caller=caller, remote="192.0.2.2")).status == 401
    assert (await rest.ask("GET", LAKE)).status == 200


def test_only_a_bounded_number_of_addresses_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_ADDRESSES_MAX", 2)
    clock = ManualClock()
    rate = addresses.AddressRate(clock, 1)
    for remote in ("192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"):
        rate.take(remote)
    assert [rate.wait_s(f"192.0.2.{each}:9") > 0 for each in (1, 2, 3)] == [False, True, True]
    none = addresses.AddressRate(clock, 0)
    none.take("192.0.2.1:1")
    assert none.wait_s("192.0.2.1:1") == 0


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - of a part that tells nobody
            await asyncio.sleep(0)


class Busy:
    """All places are taken until `free` is called."""

    def __init__(self, rest: Rest) -> None:
        self.queue = rest.endpoint._queue
        self.taken = 0
        while self.queue.enters():
            self.taken += 1

    def free(self) -> None:
        for _ in range(self.taken):
            self.queue.leave()
        self.taken = 0


async def test_a_request_that_has_waited_too_long_is_refused_before_its_caller_is_known(
    rest: Rest,
) -> None:
    busy = Busy(rest)
    assert busy.taken >= LIMIT_MIN
    waiting = asyncio.ensure_future(rest.ask("GET", LAKE, caller=WRONG))
    # As if nothing ended: the limit must not move.
    rest.endpoint._queue._adapt = lambda _began: None  # type: ignore[assignment]
    await until(lambda: busy.queue.length > 0)
    rest.service.clock.advance(WAIT_MAX_S + 0.11)
    async with asyncio.timeout(20):
        while not waiting.done():
            await asyncio.sleep(0.01)
            rest.service.clock.advance(0.05)
    answer = await waiting
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    shed = [n for _, n in rest.meters.samples("api.shed")]
    assert shed == [1]
    busy.free()
    assert (await rest.ask("GET", LAKE)).status == 200
    assert busy.queue.under_way == 0


async def test_connections_of_users_take_turns(rest: Rest) -> None:
    busy = Busy(rest)
    rest.endpoint._queue._adapt = lambda _began: None  # type: ignore[assignment]
    ended: list[str] = []

    async def ask(user: str) -> None:
        answer = await rest.ask("GET", LAKE, connection={"user": user})
        assert answer.status == 200
        ended.append(user)

    async with asyncio.TaskGroup() as group:
        for user in ["ann"] * 20 + ["bob"]:
            group.create_task(ask(user))
        await until(lambda: busy.queue.length == 21)
        for _ in range(3):
            busy.queue.leave()
            busy.taken -= 1
            await until(lambda: busy.queue.under_way < busy.queue.limit or not busy.queue.length)
        busy.free()
    assert ended.index("bob") < 4
    assert busy.queue.under_way == 0


async def test_a_connection_is_that_of_its_last_caller(rest: Rest) -> None:
    connection: dict[str, str] = {}
    await rest.ask("GET", LAKE, caller=WRONG, connection=connection)
    assert connection == {}
    await rest.ask("GET", LAKE, connection=connection)
    assert connection == {"user": "root"}


async def test_a_request_has_no_place_while_it_waits_for_its_body(rest: Rest) -> None:
    queue = rest.endpoint._queue
    seen, gate = [], asyncio.Event()
    content = b'{"name": "dev", "source": "main"}'
    scope = {
        "type": "http",
        "method": "POST",
        "path": "",
        "raw_path": f"/api/v1{LAKE}/branches".encode(),
        "query_string": b"",
        "headers": [
            (b"authorization", rest.admin.encode()),
            (b"content-length", str(len(content)).encode()),
        ],
        "client": ("192.0.2.1", 5),
    }

    async def receive() -> dict[str, Any]:
        seen.append(queue.under_way)
        await gate.wait()
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        seen.append(queue.under_way)

    asking = asyncio.ensure_future(rest.endpoint(scope, receive, send))
    await until(lambda: bool(seen))
    gate.set()
    await asking
    assert seen == [0, 0, 0]
    asking = asyncio.ensure_future(rest.endpoint(scope, receive, send))
    gate.clear()
    await until(lambda: len(seen) == 4)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert queue.under_way == 0
