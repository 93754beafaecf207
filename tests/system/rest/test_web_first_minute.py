"""From an empty installation to a merged pull request in Chromium, by links, forms and what pages say alone.

Nothing is prepared but what `tarn auth setup` makes: the key pair of the first administrator. Screenshots are kept.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rest_server import RestServer
from running_tarn import RunningTarn, clean_environment, running_tarn
from web_browser import chromium, expect, flaws, shoot, sign_in, upload, watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.beyond_the_peer, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[RunningTarn]:
    """An empty installation."""
    with running_tarn(tmp_path, "single") as running:
        yield running


def server_of(tarn: RunningTarn) -> RestServer:
    return RestServer("tarn", tarn.state()["api"], tarn.access_key_id, tarn.secret_access_key)


def run_snippet(tarn: RunningTarn, text: str) -> str:
    """Runs a program that a page showed, with the key pair in the variables that the page names."""
    keys = {
        "AWS_ACCESS_KEY_ID": tarn.access_key_id,
        "AWS_SECRET_ACCESS_KEY": tarn.secret_access_key,
    }
    done = subprocess.run(
        [sys.executable, "-"],
        input=text,
        env=clean_environment(**keys, PYTHONPATH=os.pathsep.join(sys.path)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_from_nothing_to_a_merge_of_two_people(browser: Browser, empty: RunningTarn) -> None:
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    with watched(context) as page:
        page.goto(f"{server_of(empty).url}/")
        shoot(page, "first-1-sign-in")
        sign_in(page, server_of(empty))
        expect(page.get_by_text("Create the first one")).to_be_visible()
        assert not flaws(page, "first-2-nothing")
        page.get_by_label("Name", exact=True).fill("shop")
        page.get_by_role("button", name="Create the repository").click()
        expect(page.get_by_text("main has no objects yet")).to_be_visible()
        assert not flaws(page, "first-3-repository")
        # What the page shows for programs runs as it is copied.
        page.get_by_role("button", name="Copy the Python for boto3").click()
        expect(page.get_by_text("Copied.")).to_be_visible()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert run_snippet(empty, copied) == "b'hello'\n"
        spark = page.get_by_role("region", name="Python for Spark").inner_text()
        ast.parse(spark)
        assert f'"spark.hadoop.fs.s3a.endpoint", "{empty.endpoint}"' in spark
        assert "s3a://shop/main/" in spark
        page.reload()
        expect(page.get_by_role("row", name="hello.txt added")).to_be_visible()
        upload(page, "prices.csv", b"id,price\n1,10\n")
        page.get_by_role("link", name="Look at all of them and commit").click()
        page.get_by_label("Message").fill("First prices")
        page.get_by_role("button", name="Commit all changes").click()
        shoot(page, "first-4-committed")
        page.get_by_role("link", name="Objects of main").click()
        ask_for_a_merge(page)
        second = make_a_user(page)
    with watched(browser.new_context()) as page:
        sign_in(
            page, replace(server_of(empty), access_key_id=second[0], secret_access_key=second[1])
        )
        approve_merge_and_undo(page)


def ask_for_a_merge(page: Page) -> None:
    """From the objects of main: a branch, a change on it, and a pull request."""
    page.get_by_role("link", name="Branches").click()
    page.get_by_label("Name", exact=True).fill("raise")
    page.get_by_role("button", name="Create the branch").click()
    upload(page, "prices.csv", b"id,price\n1,12\n", replaces=True)
    page.get_by_role("link", name="Look at all of them and commit").click()
    page.get_by_label("Message").fill("A raise")
    page.get_by_role("button", name="Commit all changes").click()
    shoot(page, "first-5-on-a-branch")
    page.get_by_role("link", name="Open a pull request into main").click()
    expect(page.get_by_label("Title")).to_have_value("A raise")
    shoot(page, "first-6-new-pull-request")
    page.get_by_role("button", name="Open the pull request").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("A raise")
    shoot(page, "first-7-pull-request")


def make_a_user(page: Page) -> tuple[str, str]:
    """From any page: a second user, who may read and write. Returns the key pair that a page showed."""
    page.get_by_role("link", name="Administration").click()
    table = page.get_by_role("region", name="Compactors")
    for _ in range(60):  # the one of this installation begins to watch its replicas
        if table.count():
            break
        page.wait_for_timeout(500)
        page.reload()
    expect(table.get_by_role("cell", name="nothing")).to_be_visible()
    assert not flaws(page, "administration-compactors")
    page.get_by_role("link", name="Users").click()
    page.get_by_label("Name", exact=True).fill("ben")
    page.get_by_label("Developer").check()
    page.get_by_role("button", name="Create the user").click()
    page.get_by_label("Purpose").fill("reviews")
    page.get_by_role("button", name="Create a key pair").click()
    expect(page.get_by_text("shown here once")).to_be_visible()
    shoot(page, "first-8-key-pair")
    key, secret = page.locator("code.snippet").all_inner_texts()
    return key, secret


def approve_merge_and_undo(page: Page) -> None:
    """As the second user, from the first page."""
    page.get_by_role("link", name="shop").click()
    page.get_by_role("link", name="Pull requests").click()
    page.get_by_role("link", name="1: A raise").click()
    # What a reviewer wants to see is one step away.
    page.get_by_role("link", name="Difference of prices.csv").click()
    expect(page.get_by_text("1,12")).to_be_visible()
    page.go_back()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("approves")).to_be_visible()
    shoot(page, "first-9-approved")
    page.get_by_role("button", name="Merge into main").click()
    expect(page.get_by_text("Merged by")).to_be_visible()
    shoot(page, "first-10-merged")
    page.get_by_text("Undo the merge").click()
    page.get_by_role("button", name="Preview the undoing").click()
    expect(page.get_by_role("region", name="Changes")).to_contain_text("prices.csv")
    page.get_by_role("button", name="Revert", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Commit ")
    shoot(page, "first-11-undone")
    page.get_by_role("link", name="Objects of main").click()
    page.get_by_role("link", name="prices.csv").click()
    cell = page.get_by_role("region", name="Preview of the table").get_by_role("cell")
    expect(cell.last).to_have_text("10")


def test_a_sample_repository_without_scripts(browser: Browser, empty: RunningTarn) -> None:
    """One button makes it; its branches are offered, and a beginning finds them."""
    with watched(browser.new_context(java_script_enabled=False), "404 (Not Found)") as page:
        sign_in(page, server_of(empty))
        page.get_by_role("button", name="Create the sample repository").click()
        expect(page.get_by_role("link", name="README.md")).to_be_visible()
        shoot(page, "first-sample")
        page.get_by_role("link", name="Last changes").click()
        expect(page.get_by_role("cell", name="README.md", exact=True)).to_be_visible()
        page.get_by_role("link", name="Branches").click()
        page.get_by_label("Name", exact=True).fill("feature")
        page.get_by_role("button", name="Create the branch").click()
        upload(page, "more.txt", b"x")
        page.get_by_role("link", name="Look at all of them and commit").click()
        page.get_by_label("Message").fill("More")
        page.get_by_role("button", name="Commit all changes").click()
        page.get_by_role("link", name="Compare").click()
        offered = page.locator("datalist option").evaluate_all("(all) => all.map((o) => o.value)")
        assert offered == ["feature", "main"]
        for label, name in (("From", "main"), ("To", "feat")):
            page.get_by_label(label, exact=True).fill(name)
        page.get_by_role("button", name="Compare").click()
        expect(page.get_by_role("alert")).to_contain_text("has the name feat")
        page.get_by_role("alert").get_by_role("link", name="feature").click()
        expect(page.get_by_role("row", name="added more.txt")).to_be_visible()
