"""The web interface in Chromium: every page with axe, stories with and without scripts, what only a browser decides.

Each page must leave the console empty: a report of the Content-Security-Policy would be a line there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from rest_server import RestServer
from web_browser import (
    DROP,
    another_user,
    branch_off,
    call,
    chromium,
    commit,
    expect,
    flaws,
    new_repository,
    shoot,
    sign_in,
    upload,
    watched,
)

from tarn_api.web.table import PAGES

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.beyond_the_peer, pytest.mark.timeout(600)]
KEEPS_WHAT_IT_SAYS = """document.addEventListener("DOMContentLoaded", () => {
  const said = document.getElementById("progress");
  if (said) new MutationObserver(() => {
    sessionStorage.said = (sessionStorage.said || "") + said.textContent + "\\n";
  }).observe(said, {childList: true});
});"""
WALK = {
    "web.home": "/",
    "web.signInForm": "/sign-in",
    "web.help": "/docs",
    "web.helpPage": "/docs/user/s3",
    "web.administration": "/administration",
    "web.users": "/users",
    "web.user": "/user?id=admin",
    "web.quotas": "/quotas",
    "web.access": "/access?user=admin&action=ReadRepo&resource=repository/lake",
    "web.audit": "/audit",
    "web.backups": "/backups",
    "web.connect": "{lake}/connect",
    "web.branches": "{lake}/branches",
    "web.tags": "{lake}/tags",
    "web.objects": "{lake}/objects?ref=fix",
    "web.object": "{lake}/object?ref=main&path=data/lakes.csv",
    "web.uncommitted": "{lake}/commit?branch=main",
    "web.annotate": "{lake}/annotate?ref=main&prefix=data/",
    "web.log": "{lake}/commits?ref=main",
    "web.showCommit": "{lake}/commits/main",
    "web.compare": "{lake}/compare?left=main&right=fix",
    "web.mergePreview": "{lake}/merge?source=fix&destination=other",
    "web.revertPreview": "{lake}/revert?branch=other&commit=other",
    "web.cherryPickPreview": "{lake}/cherry-pick?branch=other&commit=fix",
    "web.movePreview": "{lake}/move?branch=fix&ref=main~1",
    "web.reflog": "{lake}/reflog?branch=fix",
    "web.feed": "{lake}/feed?branch=main",
    "web.deletedBranches": "{lake}/branches/deleted",
    "web.difference": "{lake}/difference?left=other&right=fix&path=fixed.txt",
    "web.settings": "{lake}/settings",
    "web.retention": "{lake}/retention",
    "web.size": "{lake}/size?branch=main",
    "web.state": "{lake}/state",
    "web.collections": "{lake}/state/collections",
    "web.tasks": "{lake}/tasks",
    "web.task": "{lake}/task?task={task}",
    "web.pulls": "{lake}/pulls",
    "web.newPull": "{lake}/pulls/new?source=other&destination=main",
    "web.pull": "{lake}/pulls/1",
    "web.pullChanges": "{lake}/pulls/1/changes",
}
"""Where each page of the table is seen."""
LEADS_ON = {"web.signedIn", "web.repositories", "web.repository", "web.account"}
FILES = {"web.asset", "web.icon", "web.download", "web.picture"}


def test_the_walk_sees_every_page_of_the_table() -> None:
    pages = {page.id for page in PAGES if page.method == "GET"}
    assert pages == WALK.keys() | LEADS_ON | FILES


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def state(browser: Browser, lake_server: RestServer) -> Any:
    """The cookies of a browser in which the administrator is signed in."""
    with watched(browser.new_context()) as page:
        sign_in(page, lake_server)
        return page.context.storage_state()


@pytest.fixture(scope="module")
def place(browser: Browser, lake_server: RestServer, state: Any) -> str:
    """The address of a repository with a pull request, a conflict and a deleted branch, made by forms alone."""
    name = lake_server.new_name("seen")
    lake = f"{lake_server.url}/repositories/{name}"
    with watched(browser.new_context(storage_state=state, java_script_enabled=False)) as page:
        page.goto(f"{lake_server.url}/")
        if page.locator("summary", has_text="New repository").count() == 0:
            expect(page.get_by_text("Create the first one")).to_be_visible()
        new_repository(page, name, samples=True)
        for branch in ("fix", "other"):
            branch_off(page, lake, branch)
            upload(page, "fixed.txt", f"of {branch}\n".encode())
            commit(page, f"Make the {branch} <b>")
        page.goto(f"{lake}/compare?left=main&right=fix")
        page.get_by_role("link", name="Ask for it by a pull request").click()
        expect(page.get_by_label("Title")).to_have_value("Make the fix <b>")
        page.get_by_label("Description").fill("One\nfile.")
        page.get_by_role("button", name="Open the pull request").click()
        page.get_by_role("link", name="Comment on fixed.txt").click()
        page.get_by_label("Comment", exact=True).fill("Is it enough?")
        page.get_by_role("button", name="Comment", exact=True).click()
        expect(page.get_by_text("Is it enough?")).to_be_visible()
        branch_off(page, lake, "gone")
        page.goto(f"{lake}/branches")
        page.get_by_text("Delete gone").click()
        page.get_by_role("row", name="gone").get_by_role("button").click()
        expect(page.get_by_role("link", name="Deleted branches")).to_be_visible()
    return lake


def test_every_page_is_accessible_and_fits_a_phone(
    browser: Browser, lake_server: RestServer, place: str, state: Any
) -> None:
    names = {"repositoryId": place.rpartition("/")[2], "sourceRef": "fix", "destinationRef": "main"}
    started = call(lake_server, "tarn.graveler.v1.TaskService/StartPreview", {"preview": names})
    task = started["task"]["taskId"]
    wrong: list[str] = []
    with watched(browser.new_context(storage_state=state), "404 (Not Found)") as page:
        for what, target in WALK.items():
            address = target.format(lake=place, task=task)
            answer = page.goto(address if target.startswith("{") else f"{lake_server.url}{address}")
            assert answer is not None
            assert answer.status == 200, what
            wrong += flaws(page, what.partition(".")[2])
        page.goto(f"{place}/object?ref=main&path=nowhere")
        wrong += flaws(page, "error")
    assert not wrong, "\n".join(wrong)


def test_explore(browser: Browser, lake_server: RestServer, state: Any) -> None:
    """With scripts: files are dropped, previewed, downloaded and deleted; keys do what a mouse does."""
    place = f"{lake_server.url}/repositories/{lake_server.new_name('explored')}"
    context = browser.new_context(storage_state=state)
    context.add_init_script(KEEPS_WHAT_IT_SAYS)
    with watched(context, "412 (Precondition Failed)") as page:
        page.goto(f"{lake_server.url}/")
        new_repository(page, place.rpartition("/")[2], samples=True)
        # Files that are dropped on the page are uploaded by the script, which tells how far it is.
        page.evaluate(DROP, ["<b>&.txt", "dropped"])
        expect(page.get_by_role("row", name="<b>&.txt added")).to_be_visible()
        assert "<b>&.txt: 100 %" in page.evaluate("sessionStorage.said")
        shoot(page, "objects")
        # One that exists is not replaced, and the page says so.
        page.evaluate(DROP, ["<b>&.txt", "again"])
        expect(page.get_by_role("status")).to_contain_text("Not uploaded: there is an object")
        page.get_by_role("link", name="<b>&.txt").click()
        expect(page.get_by_label("Preview of the text")).to_have_text("dropped")
        page.get_by_role("link", name=place.rpartition("/")[2]).click()
        page.get_by_text("New folder…").click()
        page.get_by_label("Name of the folder in the top folder").fill("made")
        page.get_by_role("button", name="Make the folder").click()
        expect(page.get_by_role("row", name="(the folder itself)")).to_be_visible()
        page.get_by_role("link", name=place.rpartition("/")[2]).click()
        # By keys alone: past the head of the page, into a folder, to a table.
        page.keyboard.press("Tab")
        expect(page.get_by_text("Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        page.get_by_role("link", name="data/").focus()
        page.keyboard.press("Enter")
        page.get_by_role("link", name="lakes.csv").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("region", name="Preview of the table")).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("link", name="Download").click()
        assert download.value.suggested_filename == "lakes.csv"
        page.locator("summary", has_text="Delete").click()
        page.get_by_role("button", name="Delete the object").click()
        expect(page.get_by_role("row", name="lakes.csv deleted")).to_be_visible()
        commit(page, "From a browser")


def test_history(browser: Browser, lake_server: RestServer, state: Any) -> None:
    """Without scripts: a conflict is decided, changes are reverted and picked, a branch is moved and goes back."""
    name = lake_server.new_name("told")
    place = f"{lake_server.url}/repositories/{name}"
    with watched(browser.new_context(storage_state=state, java_script_enabled=False)) as page:
        page.goto(f"{lake_server.url}/")
        new_repository(page, name)
        upload(page, "a.txt", b"one\n")
        commit(page, "First")
        branch_off(page, place, "dev")
        upload(page, "a.txt", b"of dev\n", replaces=True)
        commit(page, "Of dev")
        page.goto(f"{place}/objects?ref=main")
        upload(page, "a.txt", b"of main\n", replaces=True)
        commit(page, "Of main")
        # The conflict stands on the page of the merge, with the choice.
        page.goto(f"{place}/compare?left=main&right=dev")
        page.get_by_role("link", name="Preview a merge").click()
        page.get_by_label("Winner of a.txt").select_option("source")
        page.get_by_role("button", name="Merge into main").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Commit ")
        page.goto(f"{place}/object?ref=main&path=a.txt")
        expect(page.get_by_label("Preview of the text")).to_have_text("of dev")
        # Lines of both branches; filters.
        page.get_by_role("link", name="History", exact=True).click()
        expect(page.locator("path.dot")).to_have_count(5)
        columns = {path.split()[0] for path in page.locator("path.dot").evaluate_all(
            "(all) => all.map((each) => each.getAttribute('d'))"
        )}  # fmt: skip
        assert len(columns) == 2
        shoot(page, "history")
        page.get_by_label("Message has").fill("Of dev")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("main tbody tr")).to_have_count(1)
        # Its change again on another branch, then taken back.
        branch_off(page, place, "early", "main~1~1")
        page.goto(f"{place}/commits/dev")
        page.get_by_text("Apply it to a branch").click()
        page.locator("#pick-branch").fill("early")
        page.get_by_role("button", name="Preview the cherry-pick").click()
        expect(page.get_by_role("row", name="changed a.txt")).to_be_visible()
        shoot(page, "cherry-pick")
        page.get_by_role("button", name="Cherry-pick", exact=True).click()
        expect(page.get_by_text("Of dev").first).to_be_visible()
        page.get_by_text("Revert it…").click()
        page.locator("#revert-branch").fill("early")
        page.get_by_role("button", name="Preview the revert").click()
        page.get_by_role("button", name="Revert", exact=True).click()
        page.goto(f"{place}/object?ref=early&path=a.txt")
        expect(page.get_by_label("Preview of the text")).to_have_text("one")
        # A move shows what it loses; the reflog leads back.
        page.goto(f"{place}/commits/main~1")
        page.get_by_text("Move a branch here").click()
        page.locator("#move-branch").fill("main")
        page.get_by_role("button", name="Preview the move").click()
        expect(page.get_by_role("heading", name="Commits that main would lose")).to_be_visible()
        page.get_by_role("button", name="Move main to").click()
        page.goto(f"{place}/reflog?branch=main")
        page.get_by_role("row", name="merge").get_by_role("link", name="Go back to here").click()
        page.get_by_role("button", name="Move main to").click()
        page.goto(f"{place}/object?ref=main&path=a.txt")
        expect(page.get_by_label("Preview of the text")).to_have_text("of dev")


def test_what_happens_on_a_branch_appears_by_itself(
    browser: Browser, place: str, state: Any
) -> None:
    context = browser.new_context(storage_state=state)
    with watched(context) as page:
        page.goto(f"{place}/feed?branch=main")
        expect(page.get_by_role("status")).to_have_text("Live.")
        log = page.get_by_role("log", name="Events")
        other = context.new_page()
        other.goto(f"{place}/objects?ref=main")
        other.evaluate(DROP, ["<i>watched.txt", "dropped"])
        expect(other.get_by_role("row", name="<i>watched.txt added")).to_be_visible()
        expect(log).to_contain_text("1 write in <i>watched.txt, not committed", timeout=20_000)
        commit(other, "<b>Watched")
        expect(log.get_by_role("listitem").first).to_contain_text("<b>Watched", timeout=20_000)
        shoot(page, "feed")
        log.get_by_role("link").first.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Commit ")


def test_a_pull_request_of_two_people(
    browser: Browser, lake_server: RestServer, place: str
) -> None:
    """A second user approves what the first one asked for, merges it, and takes it back."""
    with watched(browser.new_context()) as page:
        sign_in(page, another_user(lake_server))
        page.goto(f"{place}/pulls")
        page.get_by_role("link", name="1: Make the fix").click()
        page.get_by_label("Your review of").fill("It is.")
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_text("approves")).to_be_visible()
        shoot(page, "pull-request")
        page.get_by_role("button", name="Merge into main").click()
        expect(page.get_by_text("Merged by")).to_be_visible()
        page.goto(f"{place}/objects?ref=main")
        expect(page.get_by_role("link", name="fixed.txt")).to_be_visible()
        page.goto(f"{place}/pulls/1")
        page.get_by_text("Undo the merge").click()
        page.get_by_role("button", name="Preview the undoing").click()
        page.get_by_role("button", name="Revert", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Commit ")
        page.goto(f"{place}/objects?ref=main")
        expect(page.get_by_role("link", name="README.md")).to_be_visible()
        expect(page.get_by_role("link", name="fixed.txt")).to_have_count(0)


def test_administration(browser: Browser, lake_server: RestServer, state: Any) -> None:
    """A user, a key that is shown once, a protected branch, a quota, retention rules."""
    name, user = lake_server.new_name("ruled"), lake_server.new_name("cleo")
    place = f"{lake_server.url}/repositories/{name}"
    with watched(browser.new_context(storage_state=state), "403 (Forbidden)") as page:
        page.goto(f"{lake_server.url}/users")
        page.get_by_label("Name", exact=True).fill(user)
        page.get_by_label("Analyst").check()
        page.get_by_role("button", name="Create the user").click()
        page.get_by_label("Purpose").fill("notebooks")
        page.get_by_role("button", name="Create a key pair").click()
        expect(page.get_by_text("shown here once")).to_be_visible()
        secret = page.locator("code").last.inner_text()
        assert len(secret) >= 30
        assert not flaws(page, "secret")
        page.get_by_role("link", name="I have saved it").click()
        expect(page.get_by_role("cell", name="notebooks")).to_be_visible()
        assert secret not in page.content()
        page.goto(f"{lake_server.url}/")
        new_repository(page, name, samples=True)
        page.goto(f"{place}/settings")
        page.locator("summary", has_text="Change the limits").click()
        page.get_by_label("Branches", exact=True).fill("7")
        page.get_by_role("button", name="Set the limits").click()
        expect(page.get_by_role("row", name="Branches 7")).to_be_visible()
        page.locator("summary", has_text="Protect branches").click()
        page.get_by_label("Pattern of names").first.fill("main")
        page.get_by_role("button", name="Protect", exact=True).click()
        expect(page.get_by_role("row", name="main write")).to_be_visible()
        page.goto(f"{place}/object?ref=main&path=README.md")
        page.locator("summary", has_text="Delete").click()
        page.get_by_role("button", name="Delete the object").click()
        expect(page.get_by_role("alert")).to_contain_text("protected")
        page.goto(f"{place}/retention")
        rules = '{"branches": [{"match": "*", "keep_commits": 30}]}'
        page.get_by_label("Rules").fill(rules)
        page.get_by_role("button", name="Show what would expire").click()
        expect(page.get_by_text("0 of 2 commits would expire")).to_be_visible()
        assert not flaws(page, "retention-preview")
        page.get_by_role("button", name="Save these rules").click()
        expect(page.get_by_label("Rules")).to_contain_text("30")


EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def test_names_and_contents_of_users_are_never_run_as_scripts(
    browser: Browser, lake_server: RestServer, state: Any
) -> None:
    """Names, messages and contents that would run if a page took one of them for HTML; the console stays empty."""
    name = lake_server.new_name("hostile")
    place = f"{lake_server.url}/repositories/{name}"
    with watched(browser.new_context(storage_state=state)) as page:
        page.goto(f"{lake_server.url}/")
        new_repository(page, name)
        page.evaluate(DROP, ["<img src=x onerror=alert(1)>.html", EVIL])
        expect(
            page.get_by_role("row", name="<img src=x onerror=alert(1)>.html added")
        ).to_be_visible()
        page.evaluate(
            DROP, ["a.md", f"{EVIL}\n\n[x](javascript:alert(3)) ![x](http://evil.test/x)"]
        )
        expect(page.get_by_role("row", name="a.md added")).to_be_visible()
        page.goto(f"{place}/settings")
        page.locator("#metadata-name").fill(EVIL)
        page.locator("#metadata-value").fill(EVIL)
        page.get_by_role("button", name="Set", exact=True).click()
        expect(page.get_by_role("cell", name=EVIL).first).to_be_visible()
        page.goto(f"{place}/objects?ref=main")
        commit(page, EVIL)
        for target in ("objects?ref=main", "commits?ref=main", "commits/main", "settings"):
            page.goto(f"{place}/{target}")
        for path in ("a.md", "<img src=x onerror=alert(1)>.html"):
            page.goto(f"{place}/objects?ref=main")
            page.get_by_role("link", name=path).click()
            expect(page.get_by_role("heading", name="Preview")).to_be_visible()
            assert page.locator("main script, main img, main [onerror]").count() == 0
            assert page.locator("main a[href^='javascript']").count() == 0
        # Followed as a page, a stored page of HTML is a download.
        with page.expect_download():
            page.get_by_role("link", name="Download").click()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["same-site", "cross-site"])
def test_a_foreign_page_frames_nothing_and_sends_nothing(
    browser: Browser, lake_server: RestServer, place: str, state: Any, host: str
) -> None:
    """A page of another port has the cookie, too: sites are no origins."""
    document = f"""<!doctype html><title>evil</title><iframe src="{place}/branches"></iframe>
        <form method="post" action="{place}/branches"><input name="name" value="stolen-{host[:3]}">
        <input name="source" value="main"><button>Win</button></form>"""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(document.encode())

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        context = browser.new_context(storage_state=state)
        page = context.new_page()
        page.goto(f"http://{host}:{server.server_port}/")
        assert "New branch" not in page.frames[1].content()
        with page.expect_navigation() as answer:
            page.get_by_role("button", name="Win").click()
        assert answer.value.status in (401, 403)
        page.goto(f"{place}/branches?prefix=stolen")
        expect(page.get_by_text(re.compile("No branches"))).to_be_visible()
        context.close()
        server.shutdown()
