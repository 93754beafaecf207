"""Cookies: who gets one, what it is, what ends it, and that no other site can use it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
from rest_service import Answer, Rest, basic

from tarn.core.errors import Kind, Reason, TarnError
from tarn_api.endpoint import OWN_BASE
from tarn_auth.web_sessions import IDLE_US, WEB_SESSIONS_PER_USER_MAX

HERE = {"sec-fetch-site": "same-origin", "host": "tarn.example"}
LAKE = "/repositories/lake"


async def sign_in(rest: Rest, headers: dict[str, str] | None = None, **how: Any) -> Answer:
    key, secret = rest.service.admin_key
    body = {"access_key_id": key, "secret_access_key": secret}
    given = HERE if headers is None else headers
    return await rest.ask("POST", "/auth/login", body, caller=None, headers=given, **how)


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


@dataclass
class Browser:
    """A page of this origin, with its cookie."""

    rest: Rest
    cookie: str

    async def ask(self, method: str, path: str, body: object = None, **how: Any) -> Answer:
        headers = {**HERE, "cookie": self.cookie, **how.pop("headers", {})}
        sent = {name: value for name, value in headers.items() if value}
        return await self.rest.ask(method, path, body, caller=None, headers=sent, **how)


@pytest.fixture
async def browser(rest: Rest) -> Browser:
    return Browser(rest, cookie_of(await sign_in(rest)))


async def test_a_browser_that_signs_in_gets_a_cookie_of_this_host_only(rest: Rest) -> None:
    answer = await sign_in(rest)
    assert re.fullmatch(
        r"__Host-tarn=[A-Za-z0-9_-]{43}; Path=/; HttpOnly; SameSite=Lax; Secure",
        answer.headers["set-cookie"],
    )
    assert answer.json["token"] not in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    ("host", "remote", "scheme", "is_local"),
    [
        ("localhost:8001", "127.0.0.1", "http", True),
        ("127.0.0.1", "127.0.0.1", "http", True),
        ("[::1]:8001", "::1", "http", True),
        ("localhost:8001", "127.0.0.1", "https", False),
        ("localhost:8001", "192.0.2.1", "http", False),
        ("tarn.example", "127.0.0.1", "http", False),
        ("localhost.evil.example", "127.0.0.1", "http", False),
    ],
)
async def test_a_cookie_without_secure_is_for_the_loopback_only(
    rest: Rest, host: str, remote: str, scheme: str, is_local: bool
) -> None:
    how: Any = {"remote": remote, "scheme": scheme}
    answer = await sign_in(rest, {**HERE, "host": host}, **how)
    name = "tarn=" if is_local else "__Host-tarn="
    assert answer.headers["set-cookie"].startswith(name)
    assert answer.headers["set-cookie"].endswith("; Secure") is not is_local
    headers = {"cookie": cookie_of(answer), "host": host}
    assert (await rest.ask("GET", LAKE, caller=None, headers=headers, **how)).status == 200
    # Under the other name it is nothing.
    other = "tarn" if not is_local else "__Host-tarn"
    headers["cookie"] = f"{other}={cookie_of(answer).partition('=')[2]}"
    assert (await rest.ask("GET", LAKE, caller=None, headers=headers, **how)).status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "tarn.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"host": "tarn.example", "origin": "https://evil.example"},
        {"host": "tarn.example", "origin": "null"},
        {"sec-fetch-site": "cross-site", "host": "tarn.example", "origin": "https://tarn.example"},
    ],
)
async def test_programs_and_other_sites_get_a_token_and_no_cookie(
    rest: Rest, headers: dict[str, str]
) -> None:
    answer = await sign_in(rest, headers)
    assert answer.status == 200
    assert answer.json["token"]
    assert "set-cookie" not in answer.headers


async def test_a_cookie_acts_as_its_user(browser: Browser) -> None:
    assert (await browser.ask("GET", "/user")).json["user"]["id"] == "root"
    made = await browser.ask("POST", f"{LAKE}/branches", {"name": "dev", "source": "main"})
    assert made.status == 201
    assert browser.rest.audit.records[-1].principal == "root"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "same-origin"}, 201),
        ({"sec-fetch-site": "none"}, 201),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "anything"}, 403),
        ({"sec-fetch-site": ""}, 403),
        ({"sec-fetch-site": "", "origin": "https://tarn.example"}, 201),
        ({"sec-fetch-site": "", "origin": "http://TARN.example"}, 201),
        ({"sec-fetch-site": "", "origin": "https://tarn.example:8443"}, 403),
        ({"sec-fetch-site": "", "origin": "https://evil.example"}, 403),
        ({"sec-fetch-site": "", "origin": "tarn.example"}, 403),
        ({"sec-fetch-site": "", "origin": "null"}, 403),
        ({"sec-fetch-site": "", "origin": "null", "host": ""}, 403),
        ({"sec-fetch-site": "cross-site", "origin": "https://tarn.example"}, 403),
    ],
)
async def test_another_site_changes_nothing_with_a_cookie(
    browser: Browser, headers: dict[str, str], status: int
) -> None:
    body = {"name": "dev", "source": "main"}
    answer = await browser.ask("POST", f"{LAKE}/branches", body, headers=headers)
    assert answer.status == status
    found = await browser.rest.ask("GET", f"{LAKE}/branches/dev")
    assert found.status == (200 if status == 201 else 404)
    # To look is no change, and no other site can read the answer.
    assert (await browser.ask("GET", LAKE, headers=headers)).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_every_change_is_refused_before_anything_of_its_body_is_read(
    browser: Browser, method: str
) -> None:
    paths = {
        "POST": f"{LAKE}/branches",
        "PUT": f"{LAKE}/branches/main",
        "DELETE": f"{LAKE}/branches/x",
    }
    headers = {"sec-fetch-site": "cross-site"}
    answer = await browser.ask(method, paths[method], b"{not json", headers=headers)
    assert answer.status == 403


async def test_programs_need_no_site(rest: Rest) -> None:
    token = (await sign_in(rest, {})).json["token"]
    for number, caller in enumerate((rest.admin, f"Bearer {token}")):
        body = {"name": f"dev{number}", "source": "main"}
        answer = await rest.ask("POST", f"{LAKE}/branches", body, caller=caller)
        assert answer.status == 201


async def test_a_key_pair_that_a_browser_sends_by_itself_changes_nothing_for_other_sites(
    rest: Rest,
) -> None:
    body = {"name": "dev", "source": "main"}
    for headers in (
        {"sec-fetch-site": "cross-site"},
        {"origin": "https://evil.example", "host": "tarn.example"},
    ):
        answer = await rest.ask("POST", f"{LAKE}/branches", body, headers=headers)
        assert answer.status == 403
    answer = await rest.ask("POST", f"{LAKE}/branches", body, headers=HERE)
    assert answer.status == 201


async def test_a_header_decides_and_not_the_cookie_beside_it(browser: Browser) -> None:
    service = browser.rest.service
    await service.auth.create_user(service.admin, "eve", ["Analyst"])
    made = await service.auth.create_credential(service.admin, user_id="eve")
    eve = basic(made.credential.access_key_id, made.secret_access_key)
    headers = {**HERE, "cookie": browser.cookie}
    answer = await browser.rest.ask("GET", "/user", caller=eve, headers=headers)
    assert answer.json["user"]["id"] == "eve"
    for wrong in (basic("TARNX", "wrong"), "Bearer x", "Nothing", ""):
        headers["authorization"] = wrong
        answer = await browser.rest.ask("GET", "/user", caller=None, headers=headers)
        assert answer.status == 401
    # A program that sends its header and no site makes changes, whatever cookie it carries along.
    headers = {"cookie": browser.cookie}
    body = {"name": "dev", "source": "main"}
    answer = await browser.rest.ask("POST", f"{LAKE}/branches", body, headers=headers)
    assert answer.status == 201


@pytest.mark.parametrize(
    "cookie",
    [
        "__Host-tarn=",
        "__Host-tarn=x",
        "__Host-tarn=" + "x" * 43,
        "__Host-tarn=" + "x" * 5000,
        "__Host-tarn=\xff",
        "__Host-tarn",
        "a=b; ;;=;",
        "__Host-tarn=a; __Host-tarn=a",
        "tarn=x",
        "internal_auth_session=x",
    ],
)
async def test_no_other_cookie_is_a_session(rest: Rest, cookie: str) -> None:
    headers = {**HERE, "cookie": cookie.encode().decode("latin-1")}
    answer = await rest.ask("GET", LAKE, caller=None, headers=headers)
    assert answer.status == 401
    assert "www-authenticate" not in answer.headers


async def test_a_planted_cookie_beside_the_true_one_signs_nobody_in(browser: Browser) -> None:
    both = f"{browser.cookie}; __Host-tarn={'x' * 43}"
    assert (await browser.ask("GET", LAKE, headers={"cookie": both})).status == 401
    beside = f"other=1; {browser.cookie}; more=2"
    assert (await browser.ask("GET", LAKE, headers={"cookie": beside})).status == 200


async def test_a_sign_in_makes_a_new_session_and_ends_the_one_before(browser: Browser) -> None:
    again = await sign_in(browser.rest, {**HERE, "cookie": browser.cookie})
    assert cookie_of(again) != browser.cookie
    assert (await browser.ask("GET", LAKE)).status == 401
    assert (await Browser(browser.rest, cookie_of(again)).ask("GET", LAKE)).status == 200


async def test_a_planted_cookie_is_not_taken_over_by_a_sign_in(rest: Rest) -> None:
    planted = "__Host-tarn=" + "x" * 43
    answer = await sign_in(rest, {**HERE, "cookie": planted})
    assert cookie_of(answer) != planted
    assert (await Browser(rest, planted).ask("GET", LAKE)).status == 401


async def test_signing_out_ends_the_session_and_takes_the_cookie_away(browser: Browser) -> None:
    answer = await browser.ask("DELETE", "/session", base=OWN_BASE)
    assert answer.status == 204
    assert answer.headers["set-cookie"].startswith("__Host-tarn=; Path=/; HttpOnly;")
    assert answer.headers["set-cookie"].endswith("; Max-Age=0")
    assert (await browser.ask("GET", LAKE)).status == 401


async def test_another_site_signs_nobody_out(browser: Browser) -> None:
    headers = {"sec-fetch-site": "cross-site"}
    for path in ("/session", "/sessions"):
        answer = await browser.ask("DELETE", path, base=OWN_BASE, headers=headers)
        assert answer.status == 403
    assert (await browser.ask("GET", LAKE)).status == 200


async def test_whoever_signs_in_by_a_header_ends_no_session_of_a_cookie(browser: Browser) -> None:
    headers = {**HERE, "cookie": browser.cookie}
    answer = await browser.rest.ask("DELETE", "/session", base=OWN_BASE, headers=headers)
    assert answer.status == 204
    assert (await browser.ask("GET", LAKE)).status == 200


async def test_users_see_and_end_their_sessions(browser: Browser) -> None:
    other = Browser(browser.rest, cookie_of(await sign_in(browser.rest)))
    listed = (await browser.ask("GET", "/sessions", base=OWN_BASE)).json["results"]
    assert len(listed) == 2
    assert {each["access_key_id"] for each in listed} == {browser.rest.service.admin_key[0]}
    assert all(browser.cookie.partition("=")[2] not in str(each) for each in listed)
    answer = await browser.ask("DELETE", "/sessions/none", base=OWN_BASE)
    assert answer.status == 404
    for each in listed:
        ended = await browser.rest.ask("DELETE", f"/sessions/{each['id']}", base=OWN_BASE)
        assert ended.status == 204
    assert (await browser.ask("GET", LAKE)).status == 401
    assert (await other.ask("GET", LAKE)).status == 401
    fresh = Browser(browser.rest, cookie_of(await sign_in(browser.rest)))
    assert (await fresh.ask("DELETE", "/sessions", base=OWN_BASE)).status == 204
    assert (await fresh.ask("GET", LAKE)).status == 401


async def test_a_session_ends_at_once_with_its_key_pair_and_after_an_hour(browser: Browser) -> None:
    service = browser.rest.service
    await service.auth.create_user(service.admin, "eve", ["Developer"])
    made = await service.auth.create_credential(service.admin, user_id="eve")
    body = {
        "access_key_id": made.credential.access_key_id,
        "secret_access_key": made.secret_access_key,
    }
    answer = await browser.rest.ask("POST", "/auth/login", body, caller=None, headers=HERE)
    eve = Browser(browser.rest, cookie_of(answer))
    assert (await eve.ask("GET", LAKE)).status == 200
    await service.auth.delete_credential(service.admin, made.credential.access_key_id)
    assert (await eve.ask("GET", LAKE)).status == 401
    service.clock.advance(IDLE_US / 1e6)
    assert (await browser.ask("GET", LAKE)).status == 401


@pytest.mark.parametrize("reason", [Reason.OVERLOADED, Reason.FEATURE_LEVEL])
async def test_a_sign_in_that_gets_no_session_has_its_token(rest: Rest, reason: Reason) -> None:
    async def refuse(*_: object) -> str:
        raise TarnError(Kind.EXHAUSTED, reason, "injected")

    rest.service.auth.begin_web_session = refuse  # type: ignore[assignment]
    answer = await sign_in(rest)
    assert (answer.status, "set-cookie" in answer.headers) == (200, False)
    caller = f"Bearer {answer.json['token']}"
    assert (await rest.ask("GET", LAKE, caller=caller)).status == 200


async def test_a_job_that_logs_in_again_and_again_ends_no_session(browser: Browser) -> None:
    for _ in range(WEB_SESSIONS_PER_USER_MAX + 1):
        assert (await sign_in(browser.rest, {})).status == 200
    assert (await browser.ask("GET", LAKE)).status == 200


async def test_no_answer_lets_another_origin_read_it_or_run_it(browser: Browser) -> None:
    origin = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    answers = [
        await browser.ask("GET", LAKE, headers=origin),
        await browser.ask("POST", f"{LAKE}/branches", {}, headers=origin),
        await browser.ask("GET", "/none", headers=origin),
        await browser.rest.ask("OPTIONS", LAKE, caller=None, headers=origin),
        await sign_in(browser.rest),
    ]
    for answer in answers:
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; sandbox")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
