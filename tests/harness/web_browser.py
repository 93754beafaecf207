"""The web interface in Chromium, driven by Playwright: signing in, a console that must stay empty, accessibility.

`tools/setup browser` installs both. `make browser` keeps screenshots in `.test-run/screenshots`, for people.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rest_server import RestServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page

__all__ = [
    "DROP",
    "another_user",
    "branch_off",
    "call",
    "chromium",
    "commit",
    "expect",
    "flaws",
    "new_repository",
    "shoot",
    "sign_in",
    "upload",
    "watched",
]

SHOTS = Path(__file__).parents[2] / ".test-run" / "screenshots"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1200, "height": 800}
WAIT_MS = 60_000
"""A machine that does much else answers late."""
DROP = """([name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name));
  document.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
}"""
_MISPLACED = """() => [...document.querySelectorAll("a, button, input, select, textarea, summary, [onclick]")]
  .filter((each) => each.tabIndex !== 0 && each.type !== "hidden" && !each.disabled || each.onclick)
  .map((each) => each.outerHTML)"""
"""What the key Tab does not reach in the order of the page, and what only a mouse uses."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yields the system's Chromium.

    Raises:
        AssertionError: it is not installed.
    """
    program = shutil.which("chromium")
    assert program is not None, "there is no Chromium: run tools/setup browser"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def watched(context: BrowserContext, *expected: str) -> Iterator[Page]:
    """Yields a page, and checks in the end that its console has no line but the expected ones, named by a part, and
    that nothing opened a dialog."""
    said: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            said.append(message.text)

    def refuse(dialog: Dialog) -> None:
        said.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.on("console", note)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", refuse)
    yield page
    assert len(said) == len(expected), said
    assert [part for line, part in zip(said, expected, strict=True) if part not in line] == []
    context.close()


def sign_in(page: Page, server: RestServer) -> None:
    """Signs in with the keyboard, and arrives at the repositories."""
    page.goto(f"{server.url}/")
    page.get_by_label("Access key id").fill(server.access_key_id)
    page.get_by_label("Secret access key").fill(server.secret_access_key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Repositories")


def new_repository(page: Page, name: str, *, samples: bool = False) -> None:
    """Creates a repository from the first page, and arrives at its objects."""
    more = page.get_by_text("New repository", exact=True)
    if more.count():  # not the first one
        more.click()
    page.get_by_label("Name", exact=True).fill(name)
    if samples:
        page.get_by_label("Add sample data").check()
    page.get_by_role("button", name="Create the repository").click()
    expect(page.get_by_role("link", name="Commit…")).to_be_visible()


def upload(page: Page, name: str, content: bytes, *, replaces: bool = False) -> None:
    """Uploads a file by the form of a folder, and waits until it is there."""
    page.get_by_label("File", exact=True).set_input_files(
        {"name": name, "mimeType": "application/octet-stream", "buffer": content}
    )
    if replaces:
        page.get_by_label("Replace an object").check()
    page.get_by_role("button", name="Upload").click()
    mark = "changed" if replaces else "added"
    expect(page.get_by_role("row", name=f"{name} {mark}")).to_be_visible()


def commit(page: Page, message: str) -> None:
    """Commits the changes of the branch that is open."""
    page.get_by_role("link", name="Commit…").click()
    page.get_by_label("Message").fill(message)
    page.get_by_role("button", name="Commit all changes").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Commit ")


def branch_off(page: Page, place: str, name: str, source: str = "main") -> None:
    """Creates a branch, and arrives at its objects."""
    page.goto(f"{place}/branches")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("At the commit of").fill(source)
    page.get_by_role("button", name="Create the branch").click()
    expect(page.get_by_role("heading", name="Upload")).to_be_visible()


def call(server: RestServer, method: str, body: object) -> Any:
    """Calls an rpc (`tarn.auth.v1.UserService/CreateUser`) as JSON, and returns its answer."""
    url = f"{server.url}/api/tarn/v1/{method}"
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    pair = f"{server.access_key_id}:{server.secret_access_key}"
    request.add_header("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def another_user(server: RestServer, name: str = "ben") -> RestServer:
    """Returns the server for a second user, who may read and write."""
    user = server.new_name(name)
    call(server, "tarn.auth.v1.UserService/CreateUser", {"userId": user, "roles": ["Developer"]})
    made = call(server, "tarn.auth.v1.UserService/CreateCredential", {"userId": user})
    return replace(
        server,
        access_key_id=made["credential"]["accessKeyId"],
        secret_access_key=made["secretAccessKey"],
    )


def shoot(page: Page, name: str) -> None:
    """Keeps a picture of the whole page, if somebody wants to look: `make browser` does."""
    if "TARN_TEST_PICTURES" not in os.environ:
        return
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def expect(found: Any) -> Any:
    """Returns Playwright's expectations, which wait."""
    from playwright.sync_api import expect as waiting

    waiting.set_options(timeout=WAIT_MS)
    return waiting(found)


def flaws(page: Page, what: str) -> list[str]:
    """Returns what is wrong with the page that is open, all of it unfolded: for WCAG 2.2 AA in both colour schemes,
    for a phone, for the keyboard. Keeps a picture in each colour scheme. The context of the page has scripts."""
    found: list[str] = []
    page.set_viewport_size(PHONE)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.evaluate(_axe())
    # Colours differ between the schemes, nothing else does.
    for scheme, rules in (("light", RULES), ("dark", ["color-contrast"])):
        # Without motion, no colour is on its way to another one.
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        kind = "tag" if rules is RULES else "rule"
        # `preload`: axe would load the style sheet once more, which the page forbids.
        options = {"runOnly": {"type": kind, "values": rules}, "preload": False}
        report = page.evaluate("(options) => axe.run(document, options)", options)
        assert report["passes"], f"axe looked at nothing of {what}"
        found += [
            f"{what}, {scheme}: {each['id']}: {each['help']}: "
            + "; ".join(f"{node['html']} ({node['failureSummary']})" for node in each["nodes"])
            for each in report["violations"]
        ]
        shoot(page, f"{what}-{scheme}-phone")
    width = page.evaluate("document.documentElement.scrollWidth")
    if width > PHONE["width"]:
        found.append(f"{what} is {width} wide on a phone")
    found += [f"{what}: not for the keyboard: {each}" for each in page.evaluate(_MISPLACED)]
    page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    page.set_viewport_size(DESK)
    return found


@cache
def _axe() -> str:
    from axe_playwright_python.base import AXE_FILE_PATH

    return Path(AXE_FILE_PATH).read_text(encoding="utf-8")
