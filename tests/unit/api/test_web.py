"""The web interface without scripts: sign-in, its guards, and every page on real services."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from rest_service import Rest
from web_pages import NAMES, WebUser

import tarn_api.web
from tarn.config import load
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.printable import printable
from tarn_api.config import settings_of
from tarn_api.context import S3Endpoint
from tarn_api.web.links import to, to_repository
from tarn_api.web.table import PAGES, PUBLIC_PAGES
from tarn_proto.graveler.v1.merge_service_pb2 import PreviewMergeRequest
from tarn_rest.operations import Operation

LAKE = "/repositories/lake"
NONE = "\N{EN DASH}"


async def put(user: WebUser, path: str, content: bytes = b"x", **fields: str) -> None:
    target = f"{LAKE}/upload?branch=main"
    answer = await user.upload(target, "f", content, path=path, **fields)
    assert answer.status == 303, answer.body


async def test_a_stranger_is_led_to_the_sign_in_and_back(rest: Rest) -> None:
    user = WebUser(rest)
    answer = await user.get(f"{LAKE}/objects?ref=main&prefix=a%2Fb")
    assert answer.status == 303
    sign_in = answer.headers["location"]
    assert sign_in.startswith("/sign-in?next=")
    page = await user.page(sign_in)
    [form] = page.root.forms
    assert page.status == 200
    answer = await user.sign_in(form.action)
    assert answer.status == 303
    answer = await user.get(answer.headers["location"])
    assert answer.headers["location"] == f"{LAKE}/objects?ref=main&prefix=a%2Fb"
    assert (await user.get("/")).status == 200


async def test_a_wrong_secret_gets_the_form_again_and_no_cookie(rest: Rest) -> None:
    user = WebUser(rest)
    answer = await user.post("/sign-in", {"key": rest.service.admin_key[0], "secret": "no"})
    assert answer.status == 401
    assert "set-cookie" not in answer.headers
    assert b"is wrong" in answer.body
    assert b"no" not in answer.body.partition(b'name="secret"')[2].partition(b">")[0]


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "\\\\evil.example",
        "/\t/evil.example",
        "javascript:alert(1)",
        "/api/tarn/v1/session",
        "/" + "a" * 5000,
        "/ü",
    ],
)
async def test_a_sign_in_leads_to_no_other_place(rest: Rest, target: str) -> None:
    user = WebUser(rest)
    answer = await user.sign_in(f"/sign-in?next={quote(target, safe='')}")
    assert answer.headers["location"] == "/signed-in?next=%2F"
    answer = await user.get(f"/signed-in?next={quote(target, safe='')}")
    assert (answer.status, answer.headers["location"]) == (303, "/")


async def test_a_browser_without_the_cookie_is_told_why(rest: Rest) -> None:
    page = await WebUser(rest).page("/signed-in?next=%2F")
    assert page.status == 400
    assert "did not keep the cookie" in page.text


async def test_a_planted_cookie_signs_nobody_in(user: WebUser) -> None:
    """Session fixation: the session of a sign-in is new, and the one that came with it ends."""
    planted = user.cookie
    victim = WebUser(user.rest, planted)
    await victim.sign_in()
    assert victim.cookie != planted
    assert (await victim.get("/")).status == 200
    assert (await WebUser(user.rest, planted).get("/")).status == 303


async def test_signing_out_ends_the_session(user: WebUser) -> None:
    answer = await user.post("/sign-out", {})
    assert answer.headers["location"] == "/sign-in"
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert (await user.get("/")).status == 303


CHANGES = [page for page in PAGES if page.method == "POST"]
FIELDS = {"name": "other", "source": "main", "branch": "main", "path": "a", "message": "m"}
FIELDS |= {"destination": "main", "commit": "main"}
FIELDS |= {"etag": "x", "pattern": "x", "block-write": "1", "expected": "main", "ref": "main"}
FIELDS |= {"hours": "1", "kind": "repository", "user": "somebody", "key": "AKIAIOSFODNN7EXAMPLE"}
FIELDS |= {"task": "0" * 32}
"""Of all forms."""
HIDES = {"web.cancelTask", "web.deleteKey", "web.endSessionKey"}
"""Whoever may not do these is told that there is nothing of that name."""


def target_of(page: Operation) -> str:
    """Returns an address of a page, in a repository with a pull request."""
    path = page.path.replace("{repository}", "lake").replace("{commit}", "main")
    path = path.replace("{part}", "user").replace("{page}", "web")
    return path.replace("{pull}", "1")


async def ask_for_a_merge(user: WebUser) -> None:
    """Opens pull request 1, of a new branch."""
    await user.post(f"{LAKE}/branches", {"name": "asked", "source": "main"})
    await user.upload(f"{LAKE}/upload?branch=asked", "f", b"x", path="of/asked")
    await user.post(f"{LAKE}/commit", {"branch": "asked", "message": "m"})
    fields = {"source": "asked", "destination": "main", "title": "t"}
    answer = await user.post(f"{LAKE}/pulls", fields)
    assert answer.headers["location"] == f"{LAKE}/pulls/1", answer.body


async def heads_of(user: WebUser, pull: str = f"{LAKE}/pulls/1") -> dict[str, str]:
    """Returns the commits that the forms of a pull request carry."""
    [form] = [
        each for each in (await user.page(pull)).root.forms if each.action == f"{pull}/review"
    ]
    return {name: form.fields[name] for name in ("source", "destination")}


@pytest.mark.parametrize("page", CHANGES, ids=lambda page: page.id)
@pytest.mark.parametrize(
    "site",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "", "origin": "https://evil.example"},
        {"sec-fetch-site": "", "origin": "null"},
        {"sec-fetch-site": ""},
    ],
    ids=lambda site: "-".join(site.values()) or "silent",
)
async def test_no_other_site_can_send_a_form(
    user: WebUser, page: Operation, site: dict[str, str]
) -> None:
    target = target_of(page)
    key, secret = user.rest.service.admin_key
    every = {"key": key, "secret": secret, "name": "stolen", "source": "main", "branch": "main"}
    answer = await user.post(f"{target}?branch=main", {**FIELDS, **every}, site)
    assert answer.status == 403
    assert "set-cookie" not in answer.headers
    assert b"Nothing was changed" in answer.body
    assert "stolen" not in (await user.page(f"{LAKE}/branches")).text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.id)
async def test_pages_need_a_caller_unless_they_lead_to_one(rest: Rest, page: Operation) -> None:
    if page.id in PUBLIC_PAGES:
        return
    target = target_of(page)
    answer = await WebUser(rest).send(page.method, target)
    if page.method == "GET":
        assert answer.headers["location"].startswith("/sign-in?next=")
    else:
        assert answer.status == 401
        assert rest.audit.records[-1].operation == f"api:{page.id}"


def test_what_needs_no_caller_is_known() -> None:
    assert {page.id for page in PAGES} > PUBLIC_PAGES
    assert sorted(PUBLIC_PAGES) == [
        "web.asset", "web.help", "web.helpPage", "web.icon",
        "web.signIn", "web.signInForm", "web.signOut", "web.signedIn",
    ]  # fmt: skip


async def test_pages_run_only_their_own_script_and_show_in_no_frame(user: WebUser) -> None:
    first, second = [await user.page(f"{LAKE}/objects?ref=main") for _ in range(2)]
    policy = first.answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self'" in policy
    assert "base-uri 'none'" in policy
    assert "unsafe" not in policy
    assert "script-src 'self'" not in policy
    assert first.answer.headers["x-frame-options"] == "DENY"
    assert first.answer.headers["x-content-type-options"] == "nosniff"
    assert first.answer.headers["cache-control"] == "no-store"
    assert policy != second.answer.headers["content-security-policy"], "the nonce is used once"
    [nonce] = {
        each.get("nonce") for each in first.root.xpath("//script | //link[@rel='stylesheet']")
    }
    assert f"script-src 'nonce-{nonce}'" in policy
    assert f"style-src 'nonce-{nonce}'" in policy


def test_templates_switch_no_guard_off() -> None:
    folder = Path(tarn_api.web.__file__).parent
    for file in sorted((folder / "templates").iterdir()):
        text = file.read_text()
        wrong = re.findall(r"\|\s*safe|autoescape|\sstyle=|\son\w+=|<style|javascript:", text)
        assert wrong == [], file.name
        assert len(re.findall("<script", text)) == len(re.findall("<script src=", text)), file.name
        assert not re.findall(r"""(?:src|href)=["']?https?:""", text), file.name
    scripts = [each.read_bytes() for each in sorted((folder / "static").glob("*.js"))]
    assert len(scripts) == 3
    assert sum(map(len, scripts)) < 20 * 1024
    assert not any(
        re.search(rb"innerHTML|insertAdjacent|eval|document\.write", each) for each in scripts
    )


async def test_who_may_only_read_sees_pages_and_changes_nothing(rest: Rest) -> None:
    service = rest.service
    owner = WebUser(rest)
    await owner.sign_in()
    await ask_for_a_merge(owner)
    merged = await owner.post(f"{LAKE}/pulls/1/merge", await heads_of(owner))
    assert merged.status == 303, "all that is left is what a request can be asked for"
    await put(owner, "a")
    head = (await rest.ask("GET", "/repositories/lake/branches/main")).json["commit_id"]
    for user_id, roles in (("reads", ["Analyst"]), ("nobody", [])):
        await service.auth.create_user(service.admin, user_id, roles)
        made = await service.auth.create_credential(service.admin, user_id=user_id)
        user = WebUser(rest)
        await user.sign_in(pair=(made.credential.access_key_id, made.secret_access_key))
        page = await user.page(f"{LAKE}/objects?ref=main")
        assert page.status == (200 if roles else 403)
        for page_of in CHANGES:
            if page_of.id in PUBLIC_PAGES:
                continue
            target = target_of(page_of) + "?branch=main&path=a"
            every = FIELDS | {"head": head, "expected": head, "target": "main"}
            every |= {"title": "t", "body": "b", "verdict": "approve", "reviewer": "root"}
            answer = await user.post(target, every)
            is_hidden = page_of.id in HIDES and answer.status == 404
            assert answer.status == 403 or is_hidden, (page_of.id, answer.body)
            assert rest.audit.records[-1].operation == f"api:{page_of.id}"
            assert rest.audit.records[-1].principal == user_id
        answer = await user.upload(f"{LAKE}/upload?branch=main", "f", b"x" * 100, path="b")
        assert (answer.status, answer.unread) == (403, 1), "no byte was received"
        assert rest.audit.records[-1].resource == "repository/lake/branch/main"
    assert (await owner.page(f"{LAKE}/objects?ref=main")).rows()[0][:2] == ["a", "added"]


async def test_marks_are_hidden_from_who_may_not_see_them(
    user: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(user, "a")

    async def denied(*_: object, **__: object) -> None:
        raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, "no")

    monkeypatch.setattr(user.rest.service.graveler, "diff_uncommitted", denied)
    page = await user.page(f"{LAKE}/objects?ref=main")
    assert (page.status, page.rows()[0][:2]) == (200, ["a", ""])
    assert "may not see which changes are uncommitted" in page.text


async def test_a_change_whose_answer_was_lost_is_not_called_refused(
    user: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object, **__: object) -> None:
        raise TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, "the answer was lost")

    monkeypatch.setattr(user.rest.service.graveler, "start_commit", lost)
    monkeypatch.setattr("tarn.client.tasks._START_TRIES", 1)
    answer = await user.post(f"{LAKE}/commit", {"branch": "main", "message": "m"})
    assert answer.status == 500
    assert b"the tasks of the repository list it as" in answer.body
    assert b"it may have been done" in answer.body
    assert b"Nothing was changed" not in answer.body


async def test_many_changes_cost_a_bounded_number_of_calls(
    user: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changes of a folder are skipped, and a page that has too many says up to where it has marks."""
    monkeypatch.setattr("tarn_api.web.marks._PATHS", 2)
    for folder in range(3):
        for number in range(7):
            await put(user, f"{folder}/{number}")
    page = await user.page(f"{LAKE}/objects?ref=main")
    assert [row[:2] for row in page.rows()] == [[f"{n}/", "changes inside"] for n in range(3)]
    monkeypatch.setattr("tarn_api.web.marks._CALLS_MAX", 2)
    page = await user.page(f"{LAKE}/objects?ref=main")
    assert [row[1] for row in page.rows()] == ["changes inside", "changes inside", ""]
    assert "marks are shown up to 1/ only" in page.text


async def test_files_of_pages_are_kept_by_their_content(rest: Rest) -> None:
    user = WebUser(rest)
    page = await user.page("/sign-in")
    files = [each for each in page.links if each.startswith("/assets/")]
    assert {each.rpartition(".")[2] for each in files} == {"css", "svg"}
    for target in files:
        answer = await user.get(target)
        assert answer.status == 200, target
        assert "immutable" in answer.headers["cache-control"]
    assert (await user.get("/assets/0/app.css")).headers["cache-control"] == "no-store"
    for name in ("..%2Fpage.py", "%2Fetc%2Fpasswd", "base.html"):
        assert (await user.get(f"/assets/0/{name}")).status == 404
    assert (await user.get("/favicon.ico")).status == 200


async def test_an_unknown_page_says_so_and_programs_get_json(user: WebUser) -> None:
    page = await user.page("/nowhere")
    assert (page.status, page.root.xpath("string(//h1)")) == (404, "Not found")
    assert page.answer.headers["x-request-id"] in page.text
    answer = await user.get("/nowhere", accept="application/json")
    assert (answer.status, answer.json["message"] != "") == (404, True)
    assert (await user.get("/api/v1/nowhere")).headers["content-type"] == "application/json"


async def test_the_first_minute(user: WebUser) -> None:
    """An empty installation leads to a repository, an upload and a commit, by links and forms alone."""
    rest = user.rest
    await rest.ask("DELETE", "/repositories/lake")
    page = await user.page("/")
    assert "Create the first one" in page.text
    own, example = [each for each in page.root.forms if each.action == "/repositories"]
    answer = await user.post(example.action, dict(example.fields))
    page = await user.page(answer.headers["location"])
    assert "README.md" in [row[0] for row in page.rows()]
    answer = await user.post(own.action, {"name": "first", "branch": "main"})
    page = await user.page(answer.headers["location"])
    assert "main has no objects yet" in page.text
    assert 'endpoint_url="http://tarn.example:8000"' in page.text
    assert "s3a://first/main/numbers" in page.text
    [upload] = [each for each in page.root.forms if each.get("enctype")]
    answer = await user.upload(upload.action, "hello.txt", b"hello", path="")
    page = await user.page(answer.headers["location"])
    assert [row[:3] for row in page.rows()] == [["hello.txt", "added", "5 B"]]
    assert "in no version yet" in page.text
    [commit] = page.root.xpath("//a[text()='Commit…']/@href")
    page = await user.page(commit)
    assert page.rows() == [["added", "hello.txt", NONE, "5 B"]]
    answer = await user.post(
        "/repositories/first/commit", {"branch": "main", "message": "First\nline two"}
    )
    page = await user.page(answer.headers["location"])
    assert "First line two" in page.text
    assert page.rows() == [["added", "hello.txt", NONE, "5 B"]]
    page = await user.page("/repositories/first/objects?ref=main")
    assert [row[:2] for row in page.rows()] == [["hello.txt", ""]]


async def test_a_host_that_is_none_is_not_shown(user: WebUser) -> None:
    answer = await user.get(f"{LAKE}/connect", host='x"; import os; "')
    assert b"endpoint_url=&#34;http://localhost:8000&#34;" in answer.body or (
        b'endpoint_url="http://localhost:8000"' in answer.body
    )
    assert b"import os" not in answer.body


def test_the_s3_endpoint_of_pages_is_that_of_the_configuration() -> None:
    given = {"TARN_API_S3_URL": "https://s3.example/", "TARN_GATEWAYS_S3_LISTEN_ADDRESS": "[::]:90"}
    s3 = settings_of(load(None, {"HOME": "/home/ann", **given})).s3
    assert s3 == S3Endpoint("https://s3.example", 90, is_tls=False)


async def test_a_configured_s3_url_is_shown(user: WebUser, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = user.rest.endpoint
    for s3, shown in (
        (S3Endpoint("https://s3.example"), "https://s3.example"),
        (S3Endpoint(port=90, is_tls=True), "https://tarn.example:90"),
    ):
        monkeypatch.setattr(endpoint, "_backend", replace(endpoint._backend, s3=s3))
        assert f'endpoint_url="{shown}"' in (await user.page(f"{LAKE}/connect")).text


async def test_a_download_leads_to_the_s3_endpoint_that_browsers_reach(
    user: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = user.rest.endpoint

    async def sent_to(s3: S3Endpoint, path: str = "in/a&b.html", status: int = 303) -> str:
        monkeypatch.setattr(endpoint, "_backend", replace(endpoint._backend, s3=s3))
        answer = await user.get(to_repository("lake", "download", ref="main", path=path))
        assert answer.status == status
        return answer.headers.get("location", "")

    for path in ("in/a&b.html", "../b", "./b", "in/.b"):
        await put(user, path)
    secret = user.rest.service.admin_key[1]
    for url, host in (
        ("https://S3.example", "s3.example"),
        ("https://s3.example:443", "s3.example"),
        ("https://s3.example:90", "s3.example:90"),
    ):
        target = await sent_to(S3Endpoint(url))
        assert target.startswith(f"https://{host}/lake/main/in/a%26b.html?X-Amz-Algorithm=")
        assert "&X-Amz-Expires=60&" in target
        assert secret not in target
        assert "https://" in await sent_to(S3Endpoint(url), "in/.b")
        # Browsers resolve such a path; the bytes go through this process, as without a known endpoint.
        assert not await sent_to(S3Endpoint(url), "../b", 200)
        assert not await sent_to(S3Endpoint(url), "./b", 200)
        # What cannot be read is a page of this interface.
        assert not await sent_to(S3Endpoint(url), "nowhere", 404)
    assert not await sent_to(S3Endpoint(), status=200)
    # The page may have TLS before this process, and then a browser stops a download without.
    assert not await sent_to(S3Endpoint("http://s3.example"), status=200)


async def test_no_link_is_signed_for_a_reader_of_nothing(
    user: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = user.rest.endpoint
    monkeypatch.setattr(
        endpoint, "_backend", replace(endpoint._backend, s3=S3Endpoint("https://s3.example"))
    )
    await put(user, "a")
    service = user.rest.service
    await service.auth.create_user(service.admin, "eve", [])
    made = await service.auth.create_credential(service.admin, user_id="eve")
    stranger = WebUser(user.rest)
    await stranger.sign_in(pair=(made.credential.access_key_id, made.secret_access_key))
    answer = await stranger.get(f"{LAKE}/download?ref=main&path=a")
    assert (answer.status, answer.headers.get("location")) == (403, None)


@pytest.mark.parametrize("name", NAMES)
async def test_names_of_users_are_text_everywhere(user: WebUser, name: str) -> None:
    await put(user, name)
    await put(user, f"{name}/in", b"y")
    pages = [
        await user.page(f"{LAKE}/objects?ref=main"),
        await user.page(to_repository("lake", "objects", ref="main", prefix=f"{name}/")),
        await user.page(to_repository("lake", "object", ref="main", path=name)),
        await user.page(f"{LAKE}/commit?branch=main"),
    ]
    answer = await user.post(f"{LAKE}/commit", {"branch": "main", "message": name})
    pages += [
        await user.page(answer.headers["location"]),
        await user.page(to_repository("lake", "commits", ref="main", path=name)),
    ]
    assert [page.status for page in pages] == [200] * 6
    assert pages[3].rows() == pages[4].rows("Changes")
    assert [len(page.rows()) for page in pages[1:4]] == [1, 0, 2]
    assert len(pages[5].rows()) == 1
    # Where there is no such name.
    pages += [
        await user.page(to_repository("lake", "objects", ref=name)),
        await user.page(to_repository("lake", "compare", left=name, right="main")),
        await user.page(to_repository(name)),
        await user.page(to("sign-in", next=name)),
        await user.page(to(prefix=name)),
    ]
    for page in pages:
        assert page.foreign == []
        assert not set("\u202e\u200b") & set(page.text)
    [download] = [each for each in pages[2].links if "/download?" in each]
    assert (await user.get(download)).body == b"x"
    [delete] = [each.action for each in pages[2].root.forms if "/delete" in each.action]
    assert (await user.post(delete, {})).status == 303
    assert (await user.get(download)).status == 404
    assert printable(name).replace("\\", "") in pages[3].text.replace("\\", "")


async def test_content_of_users_is_never_a_page(user: WebUser) -> None:
    evil = b"<!doctype html><script>alert(1)</script>"
    await put(user, "evil.html", evil)
    answer = await user.get(f"{LAKE}/download?ref=main&path=evil.html")
    assert answer.body == evil
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''evil.html"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert (await user.get(f"{LAKE}/picture?ref=main&path=evil.html")).status == 404
    page = await user.page(f"{LAKE}/object?ref=main&path=evil.html")
    assert evil.decode() in page.text
    assert not page.root.xpath("//main//script")


async def test_metadata_of_an_object_is_text(user: WebUser) -> None:
    evil = "'><img src=x onerror=alert(1)><script>alert(2)</script>"
    headers = {"content-type": f"text/html{evil}", "x-lakefs-meta-about": evil}
    answer = await user.rest.ask(
        "POST", "/repositories/lake/branches/main/objects?path=a", b"x", headers=headers
    )
    assert answer.status == 201, answer.body
    page = await user.page(f"{LAKE}/object?ref=main&path=a")
    facts = [each.text_content() for each in page.root.xpath("//dl[@class='facts']/dd")]
    assert {evil, f"text/html{evil}"} <= set(facts)
    assert (page.foreign, page.root.xpath("//main//script")) == ([], [])


async def test_a_picture_is_one_by_its_bytes(user: WebUser) -> None:
    png = b"\x89PNG\r\n\x1a\n" + b"\0" * 32
    await put(user, "shown.html", png)
    page = await user.page(f"{LAKE}/object?ref=main&path=shown.html")
    [source] = page.root.xpath("//img/@src")
    answer = await user.get(source)
    assert (answer.body, answer.headers["content-type"]) == (png, "image/png")
    assert "sandbox" in answer.headers["content-security-policy"]


async def test_pages_of_a_folder_have_their_marks(user: WebUser) -> None:
    for number in range(130):
        await put(user, f"n/{number:03}")
    await put(user, "n/000/x")
    await user.post(f"{LAKE}/commit", {"branch": "main", "message": "all"})
    await put(user, "n/050", b"other", replace="1")
    await put(user, "n/120/deep")
    await user.post(f"{LAKE}/objects/delete?branch=main&path=n%2F129", {})
    page = await user.page(f"{LAKE}/objects?ref=main&prefix=n%2F")
    rows = page.rows()
    assert [row[0] for row in rows[:3]] == ["000", "000/", "001"]
    assert len(rows) == 100
    assert [(row[0], row[1]) for row in rows if row[1]] == [("050", "changed")]
    [target] = page.root.xpath("//a[text()='Next page']/@href")
    page = await user.page(target)
    assert [(row[0], row[1]) for row in page.rows() if row[1]] == [
        ("120/", "changes inside"),
        ("129", "deleted"),
    ]
    assert len(page.rows()) == 32
    assert not page.root.xpath("//a[text()='Next page']")
    # A tag and a commit have no uncommitted changes, and take none.
    page = await user.page(f"{LAKE}/objects?ref=main@&prefix=n%2F12")
    assert not any(row[1] for row in page.rows())
    assert not [
        each for each in page.root.forms if each.method == "POST" and "upload" in each.action
    ]


async def test_an_upload_replaces_nothing_unless_it_says_so(user: WebUser) -> None:
    await put(user, "a", b"first")
    target = f"{LAKE}/upload?branch=main"
    answer = await user.upload(target, "a", b"second", path="a")
    assert answer.status == 412
    assert b"Replace" in answer.body
    assert (await user.get(f"{LAKE}/download?ref=main&path=a")).body == b"first"
    await put(user, "a", b"second", replace="1")
    assert (await user.get(f"{LAKE}/download?ref=main&path=a")).body == b"second"


async def test_an_upload_goes_into_the_folder_under_the_name_of_the_file(user: WebUser) -> None:
    large = bytes(range(256)) * 1024
    target = f"{LAKE}/upload?branch=main&prefix=in%2Fhere%2F"
    answer = await user.upload(target, "C:\\fake\\x.bin", large, path="")
    assert answer.headers["location"] == f"{LAKE}/objects?ref=main&prefix=in%2Fhere%2F"
    got = await user.get(f"{LAKE}/download?ref=main&path=in%2Fhere%2Fx.bin")
    assert got.body == large
    assert (await user.upload(target, "", b"", path="")).status == 400


async def test_a_folder_is_made_and_stays(user: WebUser) -> None:
    await put(user, "data/a")
    page = await user.page(f"{LAKE}/objects?ref=main&prefix=data/")
    made = [await user.fill(page, "Make the folder", name="new & <b>") for _ in range(2)]
    assert [each.status for each in made] == [303, 303], "one that is there stays"
    inside = await user.page(made[0].headers["location"])
    assert [row[0] for row in inside.rows()] == ["(the folder itself)"]
    page = await user.page(f"{LAKE}/objects?ref=main&prefix=data/")
    assert [row[0] for row in page.rows()] == ["a", "new & <b>/"]
    await user.upload(inside.root.xpath("string(//form[@id='upload']/@action)"), "b.txt", b"x")
    assert await user.rest.service.size("main", "data/new & <b>/b.txt") == 1
    answer = await user.fill(page, "Make the folder", name="/")
    assert answer.status == 400


async def test_branches_and_tags_are_made_and_deleted(user: WebUser) -> None:
    for kind in ("branches", "tags"):
        answer = await user.post(f"{LAKE}/{kind}", {"name": f"one-{kind}", "source": "main"})
        assert answer.status == 303
        assert f"one-{kind}" in (await user.page(f"{LAKE}/{kind}")).text
        answer = await user.post(f"{LAKE}/{kind}/delete", {"name": f"one-{kind}"})
        assert answer.status == 303
        assert f"one-{kind}" not in (await user.page(f"{LAKE}/{kind}")).text
    answer = await user.post(f"{LAKE}/branches/delete", {"name": "main"})
    assert answer.status == 400
    assert b"default branch" in answer.body


async def test_a_branch_is_compared_and_merged(user: WebUser) -> None:
    await put(user, "a", b"1")
    await put(user, "both", b"1")
    await user.post(f"{LAKE}/commit", {"branch": "main", "message": "base"})
    await user.post(f"{LAKE}/branches", {"name": "dev", "source": "main"})
    dev = f"{LAKE}/upload?branch=dev"
    await user.upload(dev, "new", b"22", path="new")
    await user.upload(dev, "both", b"22", path="both", replace="1")
    await user.post(f"{LAKE}/commit", {"branch": "dev", "message": "dev"})
    await put(user, "both", b"333", replace="1")
    await user.post(f"{LAKE}/commit", {"branch": "main", "message": "main"})
    page = await user.page(f"{LAKE}/compare?left=main&right=dev")
    assert page.rows() == [["changed", "both", "3 B", "2 B"], ["added", "new", NONE, "2 B"]]
    [target] = [each for each in page.links if "/merge?" in each]
    page = await user.page(target)
    assert [row[:3] for row in page.rows()] == [["both", "2 B", "3 B"]]
    [form] = [each for each in page.root.forms if each.action == f"{LAKE}/merge"]
    fields = {name: str(value or "") for name, value in form.fields.items()}
    answer = await user.post(form.action, fields)
    assert answer.status == 409
    assert b"both" in answer.body
    answer = await user.post(form.action, {**fields, "side": "source"})
    page = await user.page(answer.headers["location"])
    assert [row[:2] for row in page.rows()] == [["changed", "both"], ["added", "new"]]
    assert len(page.root.xpath("//dt[text()='Parent']")) == 2
    page = await user.page(f"{LAKE}/commits?ref=main")
    assert page.rows()[0][2] == "Merge 'dev' into 'main' merge"


async def test_a_commit_of_nothing_says_what_is_missing(user: WebUser) -> None:
    answer = await user.post(f"{LAKE}/commit", {"branch": "main", "message": "x"})
    assert answer.status == 400
    answer = await user.post(f"{LAKE}/commit", {"branch": "main", "message": " "})
    assert b"the message is missing" in answer.body


async def test_forms_are_bounded(user: WebUser) -> None:
    answer = await user.post(f"{LAKE}/tags", {"name": "x" * 100_000, "source": "main"})
    assert answer.status == 413
    answer = await user.post(f"{LAKE}/tags", {f"f{number}": "" for number in range(60)})
    assert answer.status == 400
    answer = await user.post("/sign-in", {"key": "x" * 20_000, "secret": "y"})
    assert answer.status == 413


async def test_each_page_has_a_title_a_way_and_labels(user: WebUser) -> None:
    await put(user, "a/b.csv", b"x,y\n1,2\n")
    await user.post(f"{LAKE}/commit", {"branch": "main", "message": "m"})
    service = user.rest.service
    preview = PreviewMergeRequest(repository_id="lake", source_ref="main", destination_ref="main")
    task = await service.graveler.start_preview(service.admin, preview)
    await ask_for_a_merge(user)
    seen: set[str] = set()
    for page in PAGES:
        if page.method != "GET" or page.id in PUBLIC_PAGES | {"web.download", "web.picture"}:
            continue
        target = target_of(page)
        query = (
            "?ref=main&path=a%2Fb.csv&branch=main&left=main&right=main&source=main&destination=main"
        )
        query += f"&id=root&commit=main&task={task.task_id}"
        leads_on = page.id in ("web.repository", "web.account")
        found = None if leads_on else await user.page(target + query)
        if found is None:
            continue
        assert found.status == 200, (page.id, found.text)
        title = found.root.xpath("string(//title)")
        assert title.endswith(" · Tarn")
        assert len(found.root.xpath("//h1")) == 1
        assert (
            len(found.root.xpath("//nav[@aria-label='Breadcrumb']//*[@aria-current='page']")) == 1
        )
        assert found.root.xpath("//html/@lang") == ["en"]
        assert found.root.xpath("//a[@class='skip']/@href") == ["#main"]
        named = set(found.root.xpath("//label/@for"))
        for field in found.root.xpath(
            "//input[@type!='hidden' or not(@type)] | //textarea | //select"
        ):
            assert field.get("id") in named or field.getparent().tag == "label", page.id
        ids = found.root.xpath("//@id")
        assert len(ids) == len(set(ids)), page.id
        assert not found.root.xpath("//@style | //style | //script[not(@src)]"), page.id
        assert not [each for each in found.root.xpath("//@*") if each.attrname.startswith("on")]
        seen.add(title)
    assert len(seen) >= 10
