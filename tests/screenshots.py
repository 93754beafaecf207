"""`make screenshots`: the pictures of the web interface that the README shows, taken of a real Tarn.

python -m tests.screenshots [FOLDER]        default: docs/pictures
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[1]
BYTES_MAX = 150 * 1024
SIZE = {"width": 1200, "height": 620}
REPOSITORY = "lake"
OBJECTS = {
    "prices.csv": b"id,price\n1,10\n2,99\n",
    "regions.csv": b"id,region\n1,north\n2,south\n",
    "README.md": b"# Prices\n\nOne row for each product.\n",
}

if TYPE_CHECKING:
    from playwright.sync_api import Page


def main(folder: Path) -> None:
    """Takes the pictures."""
    from rest_server import RestServer
    from running_tarn import running_tarn
    from web_browser import chromium, sign_in

    with tempfile.TemporaryDirectory() as data, running_tarn(Path(data), "single") as tarn:
        server = RestServer("tarn", tarn.state()["api"], tarn.access_key_id, tarn.secret_access_key)
        with chromium() as browser:
            page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
            page.set_default_timeout(60_000)
            sign_in(page, server)
            _tell(page, f"{server.url}/repositories/{REPOSITORY}", folder)


def _tell(page: Page, place: str, folder: Path) -> None:
    from web_browser import branch_off, commit, new_repository, upload

    new_repository(page, REPOSITORY)
    for name, content in OBJECTS.items():
        upload(page, name, content)
    commit(page, "First prices")
    for branch, row in (("raise", b"3,42\n"), ("spring", b"4,7\n")):
        branch_off(page, place, branch)
        upload(page, f"{branch}.csv", b"id,price\n" + row)
        commit(page, f"Prices of the {branch}")
    page.goto(f"{place}/compare?left=main&right=raise")
    page.get_by_role("link", name="Preview a merge").click()
    page.get_by_role("button", name="Merge into main").click()
    page.goto(f"{place}/objects?ref=main")
    upload(page, "prices.csv", OBJECTS["prices.csv"] + b"5,12\n", replaces=True)
    upload(page, "currency.csv", b"id,currency\n1,EUR\n")
    page.evaluate("window.scrollTo(0, 0)")  # the script of uploads reloads the page where it was
    _take(page, folder / "web-objects.png")
    commit(page, "A price in euros")
    page.goto(f"{place}/merge?source=main&destination=spring")
    page.get_by_role("button", name="Merge into spring").click()
    page.goto(f"{place}/commits?ref=spring")
    _take(page, folder / "web-history.png")
    page.goto(f"{place}/pulls/new?source=spring&destination=main")
    page.get_by_label("Title").fill("Prices of the spring")
    page.get_by_label("Description").fill("They come from the new catalogue.")
    page.get_by_role("button", name="Open the pull request").click()
    page.get_by_label("Your review of").fill("Looks right.")
    page.get_by_role("button", name="Approve").click()
    _take(page, folder / "web-pull-request.png")


def _take(page: Page, path: Path) -> None:
    page.screenshot(path=path)
    size = path.stat().st_size
    if size > BYTES_MAX:
        raise RuntimeError(
            f"{path} has {size} bytes, more than the {BYTES_MAX} that a README shows"
        )


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests" / "harness"))
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures")
