"""Pull requests in the web interface, by links and forms alone, with hostile texts and moving heads."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from lxml import html
from rest_service import Answer, Rest
from web_pages import WebPage, WebUser

from tarn.core.access.policy import Role
from tarn.core.change_kind import PROTECTABLE
from tarn.core.errors import Kind, Reason, TarnError
from tarn.telemetry.audit.record import Outcome
from tarn_api.web.links import to_repository
from tarn_graveler.records import pull_requests as records
from tarn_proto.graveler.v1 import settings_service_pb2 as settings_pb

LAKE = "/repositories/lake"
PULLS = f"{LAKE}/pulls"
FIRST = f"{PULLS}/1"


@pytest.fixture
async def ann(rest: Rest) -> WebUser:
    """The administrator, who asks for merges."""
    user = WebUser(rest)
    assert (await user.sign_in()).status == 303
    return user


async def another(rest: Rest, user_id: str, role: Role = Role.DEVELOPER) -> WebUser:
    service = rest.service
    await service.auth.create_user(service.admin, user_id, [role])
    made = await service.auth.create_credential(service.admin, user_id=user_id)
    user = WebUser(rest)
    pair = made.credential.access_key_id, made.secret_access_key
    assert (await user.sign_in(pair=pair)).status == 303
    return user


async def changed(rest: Rest, branch: str, path: str, size: int = 1, message: str = "m") -> str:
    """Commits a change; returns the commit."""
    service = rest.service
    await service.put(path, size, branch)
    made = await service.graveler.create_commit(service.admin, "lake", branch, message)
    return made.commit.commit_id


async def asked(user: WebUser, branch: str = "dev", path: str = "raw/a", **texts: str) -> str:
    """Makes a branch with a change, asks for its merge; returns the address of the request."""
    answer = await user.post(f"{LAKE}/branches", {"name": branch, "source": "main"})
    assert answer.status == 303, answer.body
    await changed(user.rest, branch, path)
    fields = {"source": branch, "destination": "main", "title": f"Take {branch}", **texts}
    answer = await user.post(PULLS, fields)
    assert answer.status == 303, answer.body
    return answer.headers["location"]


async def protect(rest: Rest) -> None:
    graveler, admin = rest.service.graveler, rest.service.admin
    kinds = [getattr(settings_pb, f"CHANGE_KIND_{each.name}") for each in PROTECTABLE]
    review = settings_pb.ReviewRule(approval_count=1, stale=settings_pb.STALE_APPROVALS_IGNORE)
    protection = settings_pb.Protection(pattern="main", blocked=kinds, review=review)
    etag = (await graveler.get_settings(admin, "lake")).etag
    await graveler.set_rules(
        admin, "lake", protections=[protection], hidden_patterns=[], if_match=etag
    )


def forms_of(page: WebPage) -> dict[str, html.FormElement]:
    """Returns the forms that change something, by the last part of their addresses."""
    forms = [each for each in page.root.forms if each.method == "POST"]
    return {each.action.rpartition("/")[2]: each for each in forms if each.action != "/sign-out"}


async def send(
    user: WebUser, page: WebPage, name: str, accept: str = "text/html", **fields: str
) -> Answer:
    """Fills a form of a page in, and sends it."""
    form = forms_of(page)[name]
    values = {each: str(value) for each, value in form.fields.items() if value is not None}
    return await user.post(form.action, {**values, **fields}, {"accept": accept})


async def sent(user: WebUser, name: str, target: str = FIRST, **fields: str) -> WebPage:
    """Opens a request, sends one of its forms, and returns the page of the result."""
    answer = await send(user, await user.page(target), name, **fields)
    assert answer.status == 303, answer.body
    page = await user.page(answer.headers["location"])
    assert page.status == 200, page.text
    return page


async def undoing(user: WebUser) -> WebPage:
    """The preview of the revert to which the page of a merged request leads."""
    action, fields = (await user.page(FIRST)).form("Preview the undoing")
    return await user.page(f"{action}?{urlencode(fields)}")


async def undone(user: WebUser) -> WebPage:
    """Takes the merge of a request back."""
    answer = await user.fill(await undoing(user), "Revert")
    return await user.page(answer.headers["location"])


def opened_again(answer: Answer) -> WebPage:
    return WebPage(answer, html.document_fromstring(answer.body))


def rows_of(page: WebPage, region: str) -> list[list[str]]:
    """Returns the rows of the table of a region."""
    return [
        [" ".join(cell.text_content().split()) for cell in row.xpath("td")]
        for row in page.root.xpath("//div[@aria-label=$region]//tbody/tr", region=region)
    ]


def events_of(page: WebPage) -> list[str]:
    """Returns the conversation, one text for each event."""
    events = page.root.xpath("//ol[@class='events']/li")
    return [" ".join(" ".join(each.itertext()).split()) for each in events]


async def test_from_a_comparison_to_a_merge_and_back(rest: Rest, ann: WebUser) -> None:
    await changed(rest, "main", "old")
    await ann.post(f"{LAKE}/branches", {"name": "dev", "source": "main"})
    await changed(rest, "dev", "raw/may.csv", 10)
    await changed(rest, "dev", "raw/june.csv", 20)
    last = await changed(rest, "dev", "top", 5, "Load the data")
    page = await ann.page(f"{LAKE}/compare?left=main&right=dev")
    [target] = [each for each in page.links if "/pulls/new?" in each]
    page = await ann.page(target)
    expected = [["raw/", "2", "0", "0", "30 B", "0 B"], ["top", "1", "0", "0", "5 B", "0 B"]]
    assert rows_of(page, "Changes by folder") == expected
    assert [row[1] for row in rows_of(page, "Commits")] == ["Load the data", "m", "m"]
    [below] = [each for each in page.links if "prefix=raw" in each]
    inside = await ann.page(below)
    assert [row[0] for row in rows_of(inside, "Changes by folder")] == [
        "raw/june.csv",
        "raw/may.csv",
    ]
    answer = await send(ann, page, "pulls", title="Load May", description="The new\nsupplier.")
    assert answer.headers["location"] == FIRST
    page = await ann.page(FIRST)
    assert page.root.xpath("string(//h1)") == "Load May"
    assert "root asks to merge dev" in page.text
    assert "The new supplier." in page.text
    assert "No rule keeps it from being merged" in page.text
    assert [row[:6] for row in rows_of(page, "Changes by folder")] == expected
    assert [row[1] for row in rows_of(page, "Commits")] == ["Load the data", "m", "m"]

    # Comments on the request, and on a folder by the link beside it.
    await sent(ann, "comment", body="Who reads it?")
    [about] = [each for each in page.links if "about=raw" in each]
    page = await sent(ann, "comment", about.partition("#")[0], body="All of it?")
    said = events_of(page)
    assert said[0].endswith("root commented Who reads it?")
    assert said[1].endswith("root commented on raw/ All of it?")
    [folder] = page.root.xpath("//ol[@class='events']//a/@href")
    assert [row[0] for row in rows_of(await ann.page(folder), "Changes by folder")] == [
        "raw/june.csv",
        "raw/may.csv",
    ]

    # Another user approves and merges, and takes it back.
    ben = await another(rest, "ben")
    page = await sent(ben, "review", verdict="approve", body="Fine.")
    assert f"ben approves {last[:12]}" in page.text
    page = await sent(ben, "merge")
    assert "Merged by" in page.text
    assert set(forms_of(page)) == {"comment"}
    assert [row[:6] for row in rows_of(page, "Changes by folder")] == expected
    assert await rest.service.size("main", "raw/may.csv") == 10
    page = await undone(ben)
    assert page.root.xpath("string(//h1)").startswith("Commit ")
    with pytest.raises(TarnError):
        await rest.service.size("main", "raw/may.csv")
    assert await rest.service.size("main", "old") == 1
    page = await undoing(ben)
    assert "main lacks these changes already" in page.text


async def test_a_squash_is_shown_and_undone(rest: Rest, ann: WebUser) -> None:
    await asked(ann)
    page = await sent(ann, "merge", message="Mine\r\nalone", squash="1")
    assert [row[0] for row in rows_of(page, "Changes by folder")] == ["raw/"]
    commit = await rest.service.graveler.get_commit(rest.service.admin, "lake", "main")
    assert (commit.message, len(commit.parent_ids)) == ("Mine\nalone", 1)
    await undone(ann)
    with pytest.raises(TarnError):
        await rest.service.size("main", "raw/a")


async def test_a_request_is_edited_closed_and_opened_again(ann: WebUser) -> None:
    await asked(ann)
    page = await sent(ann, "edit", title="Better", description="\n  Why\r\nindeed")
    assert page.root.xpath("string(//h1)") == "Better"
    # Browsers leave out the first line break of a field.
    assert forms_of(page)["edit"].fields["description"] == "\n" + "\n  Why\nindeed"
    assert "the title was Take dev" in page.text
    page = await sent(ann, "close")
    assert not {"merge", "review", "close"} & set(forms_of(page))
    assert "closed the request" in page.text
    page = await sent(ann, "reopen")
    assert {"merge", "review", "close"} < set(forms_of(page))


async def test_a_form_of_a_request_that_ended_shows_how_it_ended(ann: WebUser) -> None:
    await asked(ann)
    page = await ann.page(FIRST)
    await sent(ann, "merge")
    for name in ("review", "close"):
        answer = await send(ann, page, name, verdict="approve")
        assert answer.status == 412
        again = opened_again(answer)
        assert "is merged" in again.root.xpath("string(//p[@role='alert'])")
        assert "Merged by" in again.text
    assert (await send(ann, page, "merge")).status == 303, "what was asked for is done"


async def test_a_review_says_what_it_is_bound_to(rest: Rest, ann: WebUser) -> None:
    await protect(rest)
    await asked(ann)
    ben = await another(rest, "ben")
    page = await ann.page(FIRST)
    assert "This keeps you from merging it now: it needs 1 more approval" in page.text
    page = await sent(ben, "review", verdict="changes", body="No.")
    assert "ben requests changes" in page.text
    assert "ben requests changes, and has neither approved since" in page.text
    assert "dismiss" not in forms_of(await ben.page(FIRST)), "who may not is not asked"
    page = await sent(ann, "dismiss")
    assert "dismissed by root" in page.text
    assert "dismissed the review of ben" in page.text
    page = await sent(ben, "review", verdict="approve")
    assert "No rule keeps it from being merged" in page.text
    assert "stale" not in page.text
    await changed(rest, "dev", "raw/b")
    page = await ben.page(FIRST)
    assert "stale: dev has moved since" in page.text
    assert "it needs 1 more approval" in page.text
    [since] = [each for each in page.links if "/compare?" in each and "right=" in each]
    assert [row[:2] for row in (await ben.page(since)).rows("Changes")] == [["added", "raw/b"]]
    # The destination is told, too; no rule counts it here.
    page = await sent(ben, "review", verdict="approve")
    assert "has moved since" not in page.text


async def test_a_review_of_a_head_that_moved_shows_what_came(rest: Rest, ann: WebUser) -> None:
    await asked(ann)
    ben = await another(rest, "ben")
    page = await ben.page(FIRST)
    now = await changed(rest, "dev", "raw/sly", message="Slip in <b>more</b>")
    answer = await send(ben, page, "review", verdict="approve", body="My <i>words</i>")
    assert answer.status == 409
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    record = rest.audit.records[-1]
    assert (record.operation, record.outcome) == ("api:web.reviewPull", Outcome.FAILED)
    again = opened_again(answer)
    assert "dev has moved" in again.text
    assert "Nothing was changed" in again.text
    assert rows_of(again, "Commits")[0][1] == "Slip in <b>more</b>"
    form = forms_of(again)["review"]
    assert (form.fields["body"], form.fields["source"]) == ("My <i>words</i>", now)
    found = await rest.service.graveler.get_pull_request(rest.service.admin, "lake", "1")
    assert not found.pull_request.reviews
    [what] = [each for each in again.links if "/compare?" in each and "right=" in each]
    assert [row[:2] for row in (await ben.page(what)).rows("Changes")] == [["added", "raw/sly"]]
    # Programs get JSON; a person who has looked at it again approves what is there now.
    answer = await send(ben, page, "review", "application/json", verdict="approve")
    assert (answer.status, "not at the expected commit" in answer.message) == (409, True)
    answer = await send(ben, again, "review", verdict="approve")
    assert answer.status == 303


async def test_a_merge_is_of_the_heads_that_were_shown(rest: Rest, ann: WebUser) -> None:
    await asked(ann)
    again = await ann.page(FIRST)
    for branch in ("dev", "main"):
        page = again
        await changed(rest, branch, f"late-{branch}")
        answer = await send(ann, page, "merge", message="My text")
        assert answer.status == 409
        again = opened_again(answer)
        assert f"{branch} has moved" in again.text
        assert forms_of(again)["merge"].fields["message"] == "My text"
        with pytest.raises(TarnError):
            await rest.service.size("main", "raw/a")
    assert (await send(ann, again, "merge")).status == 303
    assert await rest.service.size("main", "late-dev") == 1


@pytest.mark.parametrize("missing", ["source", "destination"])
@pytest.mark.parametrize("name", ["review", "merge"])
async def test_a_form_without_the_heads_does_nothing(
    rest: Rest, ann: WebUser, name: str, missing: str
) -> None:
    await asked(ann)
    answer = await send(ann, await ann.page(FIRST), name, verdict="approve", **{missing: ""})
    assert (answer.status, b"is missing" in answer.body) == (400, True)
    found = await rest.service.graveler.get_pull_request(rest.service.admin, "lake", "1")
    assert not found.pull_request.reviews
    assert not found.pull_request.merge_commit_id


async def test_heads_that_are_none_are_only_text(ann: WebUser) -> None:
    evil = '"><script>alert(1)</script>'
    await asked(ann)
    answer = await send(ann, await ann.page(FIRST), "merge", source=evil, destination=evil)
    assert answer.status == 409
    assert opened_again(answer).foreign == []


async def test_a_blocked_merge_and_a_conflict_are_told_on_the_page(
    rest: Rest, ann: WebUser
) -> None:
    await asked(ann)
    await changed(rest, "main", "raw/a", 7)
    answer = await send(ann, await ann.page(FIRST), "merge")
    assert answer.status == 409
    again = opened_again(answer)
    assert "raw/a" in again.root.xpath("string(//p[@role='alert'])")
    [target] = [each for each in again.links if "/merge?" in each]
    page = await ann.page(target)
    assert [row[0] for row in page.rows()] == ["raw/a"]
    # Decided where it is reviewed, it can be merged; but a rule is there by now.
    answer = await send(ann, page, "merge", side="source")
    assert answer.status == 303
    page = await ann.page(FIRST)
    await protect(rest)
    answer = await send(ann, page, "merge")
    assert answer.status == 412
    again = opened_again(answer)
    assert "it needs 1 more approval" in again.root.xpath("string(//p[@role='alert'])")
    assert rest.audit.records[-1].outcome is not Outcome.OK


async def test_a_merge_whose_answer_was_lost_is_not_called_refused(
    ann: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object, **__: object) -> None:
        raise TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, "the answer was lost")

    await asked(ann)
    page = await ann.page(FIRST)
    monkeypatch.setattr(ann.rest.service.graveler, "start_pull_request_merge", lost)
    monkeypatch.setattr("tarn.client.tasks._START_TRIES", 1)
    answer = await send(ann, page, "merge")
    assert answer.status == 500
    assert b"it may have been done" in answer.body
    assert b"Nothing was changed" not in answer.body


HOSTILE = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</textarea><script>alert(1)</script>",
    "javascript:alert(1)",
    "//evil.example/x",
    "{{ 7 * 7 }}{% raw %}",
    "&amp;%2e%2e?x=1#y",
]
DISGUISED = ["a\u202ecod.exe", "a\x1b[31mb", "a\nb\u200bd"]


@pytest.mark.parametrize("text", HOSTILE)
async def test_texts_of_users_are_text_everywhere(rest: Rest, ann: WebUser, text: str) -> None:
    await asked(ann, path=text.rstrip("/"), title=text, description=f"1\n{text}\n3")
    await changed(rest, "dev", f"{text}/in", message=text)
    pages = [
        await ann.page(f"{PULLS}/new?source=dev&destination=main"),
        await sent(ann, "comment", body=f"1\n{text}", path=f"{text}/"),
        await sent(ann, "comment", body=text, path=text),
        await sent(ann, "review", verdict="changes", body=text),
        await sent(ann, "edit", title=text, description=text),
        await ann.page(PULLS),
        await ann.page(f"{FIRST}/changes"),
        await ann.page(to_repository("lake", "pulls", "1", "changes", prefix=f"{text}/")),
        await ann.page(to_repository("lake", "pulls", "1", about=text)),
        await sent(ann, "merge", message=text),
        # Where there is no such name.
        await ann.page(to_repository("lake", "pulls", author=text, source=text, destination=text)),
        await ann.page(to_repository("lake", "pulls", state=text)),
        await ann.page(to_repository("lake", "pulls", "new", source=text, destination=text)),
        await ann.page(to_repository("lake", "pulls", text)),
        await ann.page(to_repository("lake", "pulls", "1", "changes", prefix=text)),
    ]
    assert [page.status for page in pages[:11]] == [200] * 11
    for page in pages:
        assert page.foreign == [], page.text
    assert pages[1].root.xpath("string(//h1)") == text
    assert pages[8].root.xpath("//input[@id='comment-path']/@value") == [text]
    shown = events_of(pages[2])
    words = " ".join(text.split())
    assert any(each.endswith(f"commented on {words}/ 1 {words}") for each in shown)
    assert any(each.endswith(f"commented on {words} {words}") for each in shown)


@pytest.mark.parametrize("text", DISGUISED)
async def test_no_text_looks_like_another_one(rest: Rest, ann: WebUser, text: str) -> None:
    """Titles and comments with control characters are refused; paths and messages with them are shown as escapes."""
    await asked(ann, path=text)
    await changed(rest, "dev", "b", message=text)
    answer = await ann.post(f"{FIRST}/edit", {"title": text, "description": ""})
    assert answer.status == 400
    pages = [
        opened_again(answer),
        await sent(ann, "comment", body="x", path=text),
        await ann.page(f"{PULLS}/new?source=dev&destination=main"),
        await ann.page(to_repository("lake", "pulls", "1", about=text)),
    ]
    for page in pages:
        assert not set("\u202e\u200b\x1b") & set(page.text), page.text


async def test_who_may_only_read_sees_no_forms(rest: Rest, ann: WebUser) -> None:
    await protect(rest)
    await asked(ann)
    reader = await another(rest, "eve", Role.ANALYST)
    page = await reader.page(FIRST)
    assert (page.status, forms_of(page)) == (200, {})
    assert (await reader.page(PULLS)).status == 200
    assert (await reader.page(f"{FIRST}/changes")).status == 200
    developer = await another(rest, "ben")
    await sent(developer, "review", verdict="approve")
    page = await developer.page(FIRST)
    assert set(forms_of(page)) == {"merge", "review", "comment", "close"}, "others edit nothing"
    assert "edit" in forms_of(await ann.page(FIRST))
    answer = await developer.post(f"{FIRST}/edit", {"title": "Mine", "description": ""})
    assert answer.status == 403


async def test_commits_that_cannot_be_read_hide_no_conversation(
    ann: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def denied(*_: object, **__: object) -> None:
        raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, "no <b>way</b>")

    await asked(ann)
    await sent(ann, "comment", body="Still here")
    monkeypatch.setattr(ann.rest.service.graveler, "summarize_diff", denied)
    page = await ann.page(FIRST)
    assert page.status == 200
    assert "The changes cannot be shown: no <b>way</b>" in page.text
    assert "Still here" in page.text


async def test_the_list_has_filters(rest: Rest, ann: WebUser) -> None:
    ben = await another(rest, "ben")
    for user, branch in ((ann, "a"), (ben, "b"), (ann, "c")):
        await asked(user, branch, f"of-{branch}")
    await sent(ann, "close", f"{PULLS}/1")
    await sent(ann, "merge", f"{PULLS}/2")

    async def numbers(query: str) -> str:
        page = await ann.page(f"{PULLS}?{query}")
        assert page.status == 200
        return "".join(row[0][0] for row in page.rows())

    assert await numbers("") == "3"
    assert await numbers("state=closed") == "1"
    assert await numbers("state=merged") == "2"
    assert await numbers("state=all") == "321"
    assert await numbers("state=all&author=root") == "31"
    assert await numbers("state=all&source=b") == "2"
    assert await numbers("state=all&destination=none") == "N"
    page = await ann.page(f"{PULLS}?state=all&author=ben")
    assert page.rows()[0][:5] == ["2: Take b", "merged", "b", "main", "ben"]
    assert page.root.xpath("//select/option[@selected]/text()") == ["all"]
    assert (await ann.page(f"{PULLS}?state=odd")).status == 400


async def test_a_page_of_the_list_costs_a_bounded_number_of_calls(
    ann: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that nothing meets looks through so many requests, and says that there are more."""
    for branch in ("a", "b", "c"):
        await asked(ann, branch, f"of-{branch}")
    monkeypatch.setattr(records, "_EXAMINED_MAX", 1)
    monkeypatch.setattr("tarn_api.web.pages.pulls._CALLS_MAX", 2)
    page = await ann.page(f"{PULLS}?state=all&source=a")
    assert "the next page goes on" in page.text
    [target] = page.root.xpath("//a[text()='Next page']/@href")
    assert [row[0] for row in (await ann.page(target)).rows()] == ["1: Take a"]


async def test_pages_of_the_list_and_of_a_conversation(
    ann: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pulls", "pull"):
        monkeypatch.setattr(f"tarn_api.web.pages.{name}.PAGE_SIZE", 2)
    for branch in ("a", "b", "c"):
        await asked(ann, branch, f"of-{branch}")
    page = await ann.page(PULLS)
    assert [row[0] for row in page.rows()] == ["3: Take c", "2: Take b"]
    [target] = page.root.xpath("//a[text()='Next page']/@href")
    assert [row[0] for row in (await ann.page(target)).rows()] == ["1: Take a"]
    for number in range(3):
        await sent(ann, "comment", body=f"Comment {number}")
    page = await ann.page(FIRST)
    assert "Comment 1" in page.text
    assert "Comment 2" not in page.text
    [target] = page.root.xpath("//a[text()='Next page']/@href")
    page = await ann.page(target)
    assert "Comment 2" in page.text
    assert "Comment 1" not in page.text


async def test_many_changes_have_pages(ann: WebUser, monkeypatch: pytest.MonkeyPatch) -> None:
    await asked(ann)
    for number in range(4):
        await ann.rest.service.put(f"{number}/x", 1, "dev")
    await changed(ann.rest, "dev", "4/x")
    monkeypatch.setattr("tarn_api.web.changes.PAGE_SIZE", 3)
    page = await ann.page(FIRST)
    assert [row[0] for row in rows_of(page, "Changes by folder")] == ["0/", "1/", "2/"]
    [target] = page.root.xpath("//a[text()='Next page']/@href")
    page = await ann.page(target)
    assert [row[0] for row in rows_of(page, "Changes by folder")] == ["3/", "4/", "raw/"]
    assert not page.root.xpath("//a[text()='Next page']")


async def test_a_second_request_of_the_same_branches_is_refused(ann: WebUser) -> None:
    await asked(ann)
    fields = {"source": "dev", "destination": "main", "title": "Again"}
    answer = await ann.post(PULLS, fields)
    assert (answer.status, b"pull request 1 with the same" in answer.body) == (409, True)
    answer = await ann.post(PULLS, {**fields, "source": "none"})
    assert answer.status == 404
    page = await ann.page(f"{PULLS}/new?source=main&destination=dev")
    assert "There is nothing to merge" in page.text
    assert "pulls" not in forms_of(page)
    page = await ann.page(f"{PULLS}/new")
    assert page.root.xpath("//input[@name='destination']/@value") == ["main"]


async def test_the_only_commit_proposes_the_title(rest: Rest, ann: WebUser) -> None:
    for branch, message, title in (
        ("a", "Fix it\nwith care", "Fix it"),
        ("b", "a\u202eb", ""),
        ("c", "x" * 300, ""),
    ):
        await ann.post(f"{LAKE}/branches", {"name": branch, "source": "main"})
        await changed(rest, branch, f"of-{branch}", message=message)
        page = await ann.page(f"{PULLS}/new?source={branch}&destination=main")
        assert forms_of(page)["pulls"].fields["title"] == title
