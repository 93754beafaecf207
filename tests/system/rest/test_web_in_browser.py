"""The web interface in Chromium: a story with scripts, accessibility in both colour schemes, a phone's width.

Each page must leave the console empty: a report of the Content-Security-Policy would be a line there.
Screenshots are kept in `.test-run/screenshots`, for people.
"""

from __future__ import annotations

import base64
import json
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rest_server import RestServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

pytestmark = [pytest.mark.beyond_the_peer, pytest.mark.long]
SHOTS = Path(__file__).parents[3] / ".test-run" / "screenshots"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
DROP = """([name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name));
  document.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
}"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    program = shutil.which("chromium")
    library = pytest.importorskip("playwright.sync_api", reason="needs tools/setup browser")
    assert program is not None, "run tools/setup browser"
    with library.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def watched(context: BrowserContext, *expected: str) -> Iterator[Page]:
    """Yields a page, and checks in the end that its console has no line but the expected ones, named by a part."""
    said: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            said.append(message.text)

    page = context.new_page()
    page.on("console", note)
    page.on("pageerror", lambda error: said.append(str(error)))
    yield page
    assert len(said) == len(expected), said
    assert [part for line, part in zip(said, expected, strict=True) if part not in line] == []
    context.close()


def sign_in(page: Page, server: RestServer) -> None:
    page.goto(f"{server.url}/")
    page.get_by_label("Access key id").fill(server.access_key_id)
    page.get_by_label("Secret access key").fill(server.secret_access_key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Repositories")


def a_developer(server: RestServer) -> RestServer:
    """Returns the server for a second user, who may read and write."""

    def ask(method: str, body: object) -> Any:
        url = f"{server.url}/api/tarn/v1/tarn.auth.v1.UserService/{method}"
        request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
        pair = f"{server.access_key_id}:{server.secret_access_key}"
        request.add_header("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    name = server.new_name("ben")
    ask("CreateUser", {"userId": name, "roles": ["Developer"]})
    made = ask("CreateCredential", {"userId": name})
    return replace(
        server,
        access_key_id=made["credential"]["accessKeyId"],
        secret_access_key=made["secretAccessKey"],
    )


def shoot(page: Page, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def expect(found: Any) -> Any:
    """Returns Playwright's expectations, which wait."""
    from playwright.sync_api import expect as waiting

    return waiting(found)


@pytest.fixture(scope="module")
def seen(chromium: Browser, lake_server: RestServer) -> tuple[str, Any]:
    """A repository that was made in the browser, and the state of one that is signed in."""
    name = lake_server.new_name("seen")
    with watched(chromium.new_context()) as page:
        sign_in(page, lake_server)
        if page.get_by_text("New repository").is_visible():
            page.get_by_text("New repository").click()
        page.get_by_label("Name", exact=True).fill(name)
        page.get_by_label("Add sample data").check()
        page.get_by_role("button", name="Create the repository").click()
        expect(page.get_by_role("link", name="README.md")).to_be_visible()
        return f"{lake_server.url}/repositories/{name}", page.context.storage_state()


@pytest.fixture(scope="module")
def asked(chromium: Browser, seen: tuple[str, Any]) -> str:
    """The address of a pull request, opened by forms without scripts."""
    place, state = seen
    with watched(chromium.new_context(storage_state=state, java_script_enabled=False)) as page:
        page.goto(f"{place}/branches")
        page.get_by_label("Name", exact=True).fill("fix")
        page.get_by_role("button", name="Create the branch").click()
        content = {"name": "fixed.txt", "mimeType": "text/plain", "buffer": b"fixed"}
        page.get_by_label("File", exact=True).set_input_files(content)
        page.get_by_role("button", name="Upload").click()
        page.get_by_role("link", name="Commit…").click()
        page.get_by_label("Message").fill("Fix <it>")
        page.get_by_role("button", name="Commit all changes").click()
        page.goto(f"{place}/compare?left=main&right=fix")
        page.get_by_role("link", name="Ask for it by a pull request").click()
        expect(page.get_by_label("Title")).to_have_value("Fix <it>")
        page.get_by_label("Description").fill("One\nfile.")
        page.get_by_role("button", name="Open the pull request").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Fix <it>")
        page.get_by_role("link", name="Comment on fixed.txt").click()
        page.get_by_label("Comment", exact=True).fill("Is it enough?")
        page.get_by_role("button", name="Comment", exact=True).click()
        expect(page.get_by_text("Is it enough?")).to_be_visible()
        return str(page.url)


def test_a_story_with_scripts(chromium: Browser, seen: tuple[str, Any]) -> None:
    place, state = seen
    context = chromium.new_context(storage_state=state)
    with watched(context, "412 (Precondition Failed)") as page:
        page.goto(place)
        # Files that are dropped on the page are uploaded by the script.
        page.evaluate(DROP, ["<b>&.txt", "dropped"])
        expect(page.get_by_role("row", name="<b>&.txt added")).to_be_visible()
        shoot(page, "objects")
        # One that exists is not replaced, and the page says so.
        page.evaluate(DROP, ["<b>&.txt", "again"])
        expect(page.get_by_role("status")).to_contain_text("Not uploaded: there is an object")
        page.get_by_role("link", name="Commit…").click()
        page.get_by_label("Message").fill("From a browser")
        page.get_by_role("button", name="Commit all changes").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Commit ")
        shoot(page, "commit")
        page.goto(f"{place}/object?ref=main&path=data/lakes.csv")
        with page.expect_download() as download:
            page.get_by_role("link", name="Download").click()
        assert download.value.suggested_filename == "lakes.csv"
        # By keyboard: the first stop is the link to the content.
        page.goto(place)
        page.keyboard.press("Tab")
        expect(page.get_by_text("Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()


def test_what_happens_on_a_branch_appears_by_itself(
    chromium: Browser, seen: tuple[str, Any]
) -> None:
    place, state = seen
    context = chromium.new_context(storage_state=state)
    with watched(context) as page:
        page.goto(f"{place}/feed?branch=main")
        expect(page.get_by_role("status")).to_have_text("Live.")
        log = page.get_by_role("log", name="Events")
        other = context.new_page()
        other.goto(f"{place}/objects?ref=main")
        other.evaluate(DROP, ["<i>watched.txt", "dropped"])
        expect(other.get_by_role("row", name="<i>watched.txt added")).to_be_visible()
        expect(log).to_contain_text("1 write in <i>watched.txt, not committed", timeout=20_000)
        other.get_by_role("link", name="Commit…").click()
        other.get_by_label("Message").fill("<b>Watched")
        other.get_by_role("button", name="Commit all changes").click()
        expect(log.get_by_role("listitem").first).to_contain_text("<b>Watched", timeout=20_000)
        shoot(page, "feed")
        log.get_by_role("link").first.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Commit ")


def test_forms_without_scripts(chromium: Browser, seen: tuple[str, Any]) -> None:
    place, state = seen
    with watched(chromium.new_context(storage_state=state, java_script_enabled=False)) as page:
        page.goto(f"{place}/branches")
        page.get_by_label("Name", exact=True).fill("dev")
        page.get_by_label("At the commit of").fill("main~1")
        page.get_by_role("button", name="Create the branch").click()
        content = {"name": "n.txt", "mimeType": "text/plain", "buffer": b"by a form"}
        page.get_by_label("File", exact=True).set_input_files(content)
        page.get_by_role("button", name="Upload").click()
        expect(page.get_by_role("row", name="n.txt added")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_page_is_accessible_and_fits_a_phone(
    chromium: Browser, lake_server: RestServer, seen: tuple[str, Any], asked: str, scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    place, state = seen
    pages = {
        "sign-in": f"{lake_server.url}/sign-in",
        "repositories": f"{lake_server.url}/",
        "folder": f"{place}/objects?ref=main",
        "table": f"{place}/object?ref=main&path=data/lakes.csv",
        "text": f"{place}/object?ref=main&path=README.md",
        "branches": f"{place}/branches",
        "tags": f"{place}/tags",
        "history": f"{place}/commits?ref=main",
        "one-commit": f"{place}/commits/main",
        "uncommitted": f"{place}/commit?branch=main",
        "compare": f"{place}/compare?left=main~1&right=main",
        "merge": f"{place}/merge?source=main&destination=main~1",
        "connect": f"{place}/connect",
        "reflog": f"{place}/reflog?branch=main",
        "feed": f"{place}/feed?branch=main",
        "move": f"{place}/move?branch=main&ref=main~1",
        "deleted-branches": f"{place}/branches/deleted",
        "difference": f"{place}/difference?left=main~1&right=main&path=README.md",
        "settings": f"{place}/settings",
        "retention": f"{place}/retention",
        "state": f"{place}/state",
        "tasks": f"{place}/tasks",
        "administration": f"{lake_server.url}/administration",
        "users": f"{lake_server.url}/users",
        "user": f"{lake_server.url}/account",
        "quotas": f"{lake_server.url}/quotas",
        "pull-requests": f"{place}/pulls",
        "new-pull-request": f"{place}/pulls/new?source=fix&destination=main~1",
        "pull-request": asked,
        "pull-request-changes": f"{asked}/changes",
    }
    problems: list[str] = []
    context = chromium.new_context(
        storage_state=state,
        color_scheme=scheme,
        bypass_csp=True,  # for axe, which the pages would not run
        viewport={"width": 360, "height": 740},
    )
    with watched(context) as page:
        for what, target in pages.items():
            page.goto(target)
            for each in page.locator("main details > summary").all():
                each.click()
            found = Axe().run(page, options={"runOnly": {"type": "tag", "values": RULES}})
            if found.violations_count:
                problems.append(f"{what}:\n{found.generate_report()}")
            width = page.evaluate("document.documentElement.scrollWidth")
            if width > 360:
                problems.append(f"{what} is {width} wide on a phone")
            shoot(page, f"{what}-{scheme}-phone")
    assert not problems, "\n".join(problems)


def test_a_pull_request_of_two_people(
    chromium: Browser, lake_server: RestServer, asked: str
) -> None:
    """A second user approves what the first one asked for, merges it, and takes it back."""
    place = asked.partition("/pulls/")[0]
    with watched(chromium.new_context()) as page:
        sign_in(page, a_developer(lake_server))
        page.goto(asked)
        page.get_by_label("Your review of").fill("It is.")
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_text("approves")).to_be_visible()
        shoot(page, "pull-request")
        page.get_by_role("button", name="Merge into main").click()
        expect(page.get_by_text("Merged by")).to_be_visible()
        page.goto(f"{place}/objects?ref=main")
        expect(page.get_by_role("link", name="fixed.txt")).to_be_visible()
        page.goto(asked)
        page.get_by_text("Undo the merge").click()
        page.get_by_role("button", name="Revert the merge").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Commit ")
        page.goto(f"{place}/objects?ref=main")
        expect(page.get_by_role("link", name="README.md")).to_be_visible()
        expect(page.get_by_role("link", name="fixed.txt")).to_have_count(0)
