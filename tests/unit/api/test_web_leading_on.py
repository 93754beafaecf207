"""What leads on: names that fields offer, the way from a commit to a pull request, who changed a path last."""

from __future__ import annotations

import pytest
from web_pages import NAMES, WebPage, WebUser

from tarn.core.errors import Kind, Reason, TarnError
from tarn_api.web.links import to_repository
from tarn_proto.graveler.v1 import pull_request_service_pb2 as pull_pb

LAKE = "/repositories/lake"


async def put(user: WebUser, path: str, content: bytes = b"x", branch: str = "main") -> None:
    target = to_repository("lake", "upload", branch=branch)
    answer = await user.upload(target, "f", content, path=path, replace="1")
    assert answer.status == 303, answer.body


async def commit(user: WebUser, message: str, branch: str = "main") -> str:
    """Commits, and returns where the answer leads."""
    answer = await user.post(f"{LAKE}/commit", {"branch": branch, "message": message})
    assert answer.status == 303, answer.body
    return answer.headers["location"]


async def branch_off(user: WebUser, name: str, source: str = "main") -> None:
    answer = await user.post(f"{LAKE}/branches", {"name": name, "source": source})
    assert answer.status == 303, answer.body


def offered(page: WebPage) -> list[str]:
    return list(map(str, page.root.xpath("//datalist[@id='refs']/option/@value")))


async def test_fields_of_refs_offer_their_names(user: WebUser) -> None:
    await branch_off(user, "dev")
    await user.post(f"{LAKE}/tags", {"name": "v1", "source": "main"})
    for target, fields in {
        "compare": 2,
        "objects?ref=main": 1,
        "commits?ref=main": 1,
        "annotate?ref=main": 1,
        "branches": 1,
        "tags": 1,
    }.items():
        page = await user.page(f"{LAKE}/{target}")
        assert offered(page) == ["dev", "main", "v1"], target
        assert len(page.root.xpath("//input[@list='refs']")) == fields, target
    # What takes branches only offers no tag.
    for target in ("pulls/new", "pulls", "state"):
        assert offered(await user.page(f"{LAKE}/{target}")) == ["dev", "main"], target


async def test_a_page_offers_a_bounded_number_of_names(
    user: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarn_api.web.choices.OFFERED_MAX", 1)
    await branch_off(user, "dev")
    assert offered(await user.page(f"{LAKE}/compare")) == ["dev"]


@pytest.mark.parametrize(
    ("target", "field"),
    [("compare?left=main&right=fea", "right"), ("compare?left=fea&right=main", "left")],
)
async def test_the_beginning_of_a_name_finds_it(user: WebUser, target: str, field: str) -> None:
    await branch_off(user, "feature-one")
    await user.post(f"{LAKE}/tags", {"name": "feast", "source": "main"})
    page = await user.page(f"{LAKE}/{target}")
    assert page.status == 404
    [alert] = page.root.xpath("//*[@role='alert']")
    assert "has the name fea" in alert.text_content()
    found = {each.text_content(): each.get("href") for each in alert.xpath(".//a")}
    assert list(found) == ["feature-one", "feast"]
    page = await user.page(found["feature-one"])
    assert page.status == 200
    assert page.root.xpath(f"string(//input[@name='{field}']/@value)") == "feature-one"


async def test_the_beginning_of_a_branch_finds_it_for_a_pull_request(user: WebUser) -> None:
    await branch_off(user, "feature")
    page = await user.page(f"{LAKE}/pulls/new?source=feat&destination=main")
    assert page.status == 404
    [target] = page.root.xpath("//*[@role='alert']//a/@href")
    page = await user.page(target)
    assert "nothing to merge" in page.text
    page = await user.page(f"{LAKE}/compare?left=main&right=none")
    assert page.root.xpath("//*[@role='alert']")
    assert page.root.xpath("//*[@role='alert']//a") == [], "nothing begins with it"


@pytest.mark.parametrize("name", NAMES)
async def test_names_that_are_none_are_only_text(user: WebUser, name: str) -> None:
    for page in (
        await user.page(to_repository("lake", "compare", left="main", right=name)),
        await user.page(to_repository("lake", "pulls", "new", source=name, destination="main")),
        await user.page(to_repository("lake", "annotate", ref=name)),
        await user.page(to_repository("lake", "annotate", ref="main", prefix=name)),
    ):
        assert page.foreign == []
        assert not set("\u202e\u200b") & set(page.text)


async def test_other_errors_are_no_missing_names(user: WebUser) -> None:
    page = await user.page("/repositories/nowhere/compare?left=main&right=dev")
    assert (page.status, page.root.xpath("//input")) == (404, [])
    page = await user.page(f"{LAKE}/compare?left=main&right=main~99")
    assert page.status == 404


async def test_a_commit_on_a_branch_leads_to_a_pull_request(user: WebUser) -> None:
    await put(user, "a")
    page = await user.page(await commit(user, "First"))
    assert "Open a pull request" not in page.text, "main is where it would be merged into"
    assert "It is on main." in page.text
    await branch_off(user, "dev")
    await put(user, "a", b"changed", "dev")
    page = await user.page(await commit(user, "Second", "dev"))
    [target] = page.root.xpath("//a[text()='Open a pull request into main']/@href")
    page = await user.page(target)
    assert page.root.xpath("string(//input[@name='title']/@value)") == "Second"
    answer = await user.fill(page, "Open the pull request")
    first = answer.headers["location"]
    # From now on it leads to that one.
    await put(user, "a", b"again", "dev")
    page = await user.page(await commit(user, "Third", "dev"))
    assert page.root.xpath("//a[text()='See its pull request 1']/@href") == [first]
    # The page of any commit says nothing of a branch.
    page = await user.page(f"{LAKE}/commits/dev")
    assert "It is on" not in page.text
    # A review shows what changed in a text.
    page = await user.page(first)
    [target] = [each for each in page.links if "/difference?" in each]
    page = await user.page(target)
    assert [each.text_content() for each in page.root.xpath("//pre/ins")] == ["+ again"]


async def test_a_commit_is_shown_to_whoever_may_not_see_requests(
    user: WebUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(user, "a")
    target = await commit(user, "First")

    async def refused(*_: object, **__: object) -> pull_pb.ListPullRequestsResponse:
        raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, "no")

    monkeypatch.setattr(user.rest.service.graveler, "list_pull_requests", refused)
    monkeypatch.setattr(user.rest.service.graveler, "list_branches", refused)
    monkeypatch.setattr(user.rest.service.graveler, "list_tags", refused)
    page = await user.page(target)
    assert (page.status, offered(page)) == (200, [])
    assert (await user.page(f"{LAKE}/compare")).status == 200


async def test_who_changed_each_path_last(user: WebUser, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("raw/a", "raw/b", "top"):
        await put(user, path)
    await commit(user, "First")
    await put(user, "raw/b", b"new")
    await commit(user, "Second\n\nmore")
    await put(user, "raw/c")  # not committed
    page = await user.page(f"{LAKE}/objects?ref=main&prefix=raw/")
    [target] = page.root.xpath("//a[text()='Last changes']/@href")
    page = await user.page(target)
    rows = page.rows()
    assert [(row[0], row[2], row[3]) for row in rows] == [
        ("raw/a", "First", "root"),
        ("raw/b", "Second", "root"),
    ]
    [history] = page.root.xpath("//a[contains(., 'History of raw/b')]/@href")
    assert len((await user.page(history)).rows()) == 2
    # Page by page.
    monkeypatch.setattr("tarn_api.web.pages.annotate.PAGE_SIZE", 2)
    page = await user.page(f"{LAKE}/annotate?ref=main")
    assert [row[0] for row in page.rows()] == ["raw/a", "raw/b"]
    [more] = page.root.xpath("//a[text()='Next page']/@href")
    assert [row[0] for row in (await user.page(more)).rows()] == ["top"]


async def test_a_search_that_ended_leads_on(user: WebUser, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(user, "a")
    await commit(user, "First")
    for number in range(3):
        await put(user, "b", str(number).encode())
        await commit(user, f"Other {number}")
    monkeypatch.setattr("tarn_graveler.views.annotating._STEPS_MAX", 1)
    monkeypatch.setattr("tarn_graveler.views.annotating._BATCH", 1)
    page = await user.page(f"{LAKE}/annotate?ref=main&prefix=a")
    seen = 0
    while more := page.root.xpath("//a[contains(., 'search on')]/@href"):
        page, seen = await user.page(more[0]), seen + 1
        assert seen < 9
    assert (seen > 0, page.rows()[0][2]) == (True, "First")
