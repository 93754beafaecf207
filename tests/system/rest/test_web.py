"""The web interface of a running Tarn without scripts: from the sign-in to a merge, by links and forms alone."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode, urljoin, urlsplit

import pytest
from lxml import html
from rest_server import RestServer
from web_pages import BOUNDARY, multipart

pytestmark = pytest.mark.beyond_the_peer


@dataclass
class Browser:
    """A browser without scripts: it follows redirects, and keeps the cookie.

    Attributes:
        url: of the page that is open.
        root: its document.
        body: its bytes.
    """

    url: str
    cookie: str = ""
    root: html.HtmlElement = field(default_factory=lambda: html.fromstring("<p>"))
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def go(
        self, target: str, body: bytes | None = None, kind: str = "", *, status: int = 200
    ) -> None:
        method = "GET" if body is None else "POST"
        while True:
            url = urlsplit(urljoin(self.url, target))
            connection = http.client.HTTPConnection(url.netloc, timeout=60)
            sent = {"Accept": "text/html", "Sec-Fetch-Site": "same-origin", "Cookie": self.cookie}
            if body is not None:
                sent["Content-Type"] = kind or "application/x-www-form-urlencoded"
            full = url.path + (f"?{url.query}" if url.query else "")
            connection.request(method, full, body, {k: v for k, v in sent.items() if v})
            answer = connection.getresponse()
            self.body, self.headers = answer.read(), dict(answer.getheaders())
            connection.close()
            if cookie := answer.getheader("set-cookie"):
                self.cookie = cookie.partition(";")[0]
            self.url = url.geturl()
            if answer.status != 303:
                break
            method, body, target = "GET", None, answer.getheader("location") or ""
        assert answer.status == status, (self.url, answer.status, self.body[-900:])
        if (answer.getheader("content-type") or "").startswith("text/html"):
            self.root = html.document_fromstring(self.body, base_url=self.url)

    def follow(self, text: str) -> None:
        """Follows the first link with this text."""
        target = self.root.xpath(
            "(//main//a | //nav//a)[normalize-space(.)=$text]/@href", text=text
        )
        assert target, (text, self.url)
        self.go(target[0])

    def send(
        self,
        button: str,
        more: Mapping[str, str] | None = None,
        *,
        status: int = 200,
        **fields: str,
    ) -> None:
        """Fills the form of a button in, and sends it; `more` are fields whose names are no names of Python."""
        [form] = [
            each
            for each in self.root.forms
            if any(b.text_content().strip() == button for b in each.xpath(".//button"))
        ]
        values = {name: str(value) for name, value in form.fields.items() if value is not None}
        encoded = urlencode({**values, **(more or {}), **fields}).encode()
        if form.method == "GET":
            self.go(f"{form.action or urlsplit(self.url).path}?{encoded.decode()}", status=status)
        else:
            self.go(form.action, encoded, status=status)

    def upload(self, name: str, content: bytes, **fields: str) -> None:
        [form] = [each for each in self.root.forms if each.get("enctype")]
        kind = f"multipart/form-data; boundary={BOUNDARY}"
        self.go(form.action, multipart(fields, name, content), kind)

    @property
    def text(self) -> str:
        return " ".join(self.root.text_content().split())


def _play_a_pull_request(browser: Browser, name: str) -> None:
    """Asks for a merge into main, reviews it, merges it, and takes it back."""
    browser.follow("Branches")
    browser.send("Create the branch", name="fix", source="main")
    browser.upload("lakes.csv", b"name,area\nLadoga,17700\n", path="data/lakes.csv", replace="1")
    browser.follow("Commit…")
    browser.send("Commit all changes of fix", message="the greatest of Europe")
    browser.follow("Pull requests")
    browser.follow("New pull request")
    browser.send("Show the changes", source="fix", destination="main")
    browser.send("Open the pull request", description="Only this one.")
    request = browser.url
    browser.send("Comment", body="Which source?", path="data/")
    browser.send("Approve", verdict="approve")
    assert "Which source?" in browser.text
    browser.send("Merge into main")
    assert "Merged by" in browser.text
    browser.go(f"/repositories/{name}/download?ref=main&path=data%2Flakes.csv")
    assert b"Ladoga" in browser.body
    browser.go(request)
    browser.send("Preview the undoing")
    browser.send("Revert")
    browser.go(f"/repositories/{name}/download?ref=main&path=data%2Flakes.csv")
    assert b"Victoria" in browser.body


def test_a_day_in_the_web_interface(lake_server: RestServer) -> None:
    name = lake_server.new_name("web")
    browser = Browser(f"{lake_server.url}/")
    browser.go("/")
    assert browser.text.startswith("Sign in")
    browser.send("Sign in", status=401, key=lake_server.access_key_id, secret="wrong")
    browser.send("Sign in", key=lake_server.access_key_id, secret=lake_server.secret_access_key)
    assert re.match("(__Host-)?tarn=", browser.cookie)

    # A repository, an object of more than one piece, a commit.
    browser.send("Create the repository", name=name)
    assert "has no objects yet" in browser.text
    assert 'endpoint_url="http://127.0.0.1:' in browser.text
    large = bytes(range(256)) * 30_000
    browser.upload("big.bin", large)
    browser.upload("lakes.csv", b"name,area\nBaikal,31722\n", path="data/lakes.csv")
    browser.follow("lakes.csv")
    assert browser.root.xpath("//table//th/text() | //table//th/bdi/text()") == ["name", "area"]
    browser.go(f"/repositories/{name}/download?ref=main&path=big.bin")
    assert browser.body == large
    browser.go(f"/repositories/{name}")
    browser.follow("Commit…")
    browser.send("Commit all changes of main", message="first data")
    assert "data/lakes.csv" in browser.text

    # A branch, a change there, and its merge.
    browser.follow("Branches")
    browser.send("Create the branch", name="dev", source="main")
    browser.upload("lakes.csv", b"name,area\nVictoria,68870\n", path="data/lakes.csv", replace="1")
    browser.follow("Commit…")
    browser.send("Commit all changes of dev", message="another lake")
    browser.follow("Compare")
    browser.send("Compare", left="main", right="dev")
    browser.follow("Preview a merge of dev into main")
    browser.send("Merge into main")
    assert "Merge 'dev' into 'main'" in browser.text
    browser.go(f"/repositories/{name}/download?ref=main&path=data%2Flakes.csv")
    assert b"Victoria" in browser.body

    _play_a_pull_request(browser, name)

    # The past stays.
    browser.go(f"/repositories/{name}/commits?ref=main")
    browser.follow("Tags")
    browser.send("Create the tag", name="v1", source="main~3")
    browser.go(f"/repositories/{name}/download?ref=v1&path=data%2Flakes.csv")
    assert b"Baikal" in browser.body
    browser.go(f"/repositories/{name}/object?ref=main&path=big.bin")
    browser.send("Delete the object")
    assert "deleted" in browser.text
    browser.go(f"/repositories/{name}/object?ref=main&path=big.bin", status=404)
    assert "Not found" in browser.text

    browser.go("/")
    browser.send("Sign out")
    browser.go("/")
    assert browser.text.startswith("Sign in")


def test_the_past_is_seen_and_brought_back(lake_server: RestServer) -> None:
    name = lake_server.new_name("past")
    browser = Browser(f"{lake_server.url}/")
    browser.go("/")
    browser.send("Sign in", key=lake_server.access_key_id, secret=lake_server.secret_access_key)
    browser.go("/")
    browser.send("Create the repository", name=name)

    def write(branch: str, content: bytes) -> None:
        browser.go(f"/repositories/{name}/objects?ref={branch}")
        browser.upload("a", content, path="data/a", replace="1")
        browser.follow("Commit…")
        browser.send(f"Commit all changes of {branch}", message=content.decode())

    def read() -> bytes:
        browser.go(f"/repositories/{name}/download?ref=main&path=data%2Fa")
        return browser.body

    write("main", b"first")
    browser.go(f"/repositories/{name}/branches")
    browser.send("Create the branch", name="dev", source="main")
    write("dev", b"of dev")
    write("main", b"of main")

    # A conflict is looked at and decided; the log draws both lines.
    browser.go(f"/repositories/{name}/merge?source=dev&destination=main")
    browser.follow("Show that of data/a")
    assert "- of main + of dev" in browser.text
    browser.go(f"/repositories/{name}/merge?source=dev&destination=main")
    browser.send("Merge into main", {"winner:data%2Fa": "source"})
    assert read() == b"of dev"
    browser.go(f"/repositories/{name}/commits?ref=main")
    assert {each.get("width") for each in browser.root.xpath("//svg[@class='lines']")} == {"28"}
    browser.send("Show", text="FIRST")
    assert len(browser.root.xpath("//main//tbody/tr")) == 1

    # The merge is undone, the branch moved back, and a deleted branch restored.
    browser.go(f"/repositories/{name}/commits/main")
    browser.send("Preview the revert")
    browser.send("Revert")
    assert read() == b"of main"
    browser.go(f"/repositories/{name}/branches")
    browser.follow("Reflog of main")
    [target] = browser.root.xpath("//tr[td[2]='merge']//a[contains(., 'Go back')]/@href")
    browser.go(target)
    [button] = browser.root.xpath("//button[starts-with(., 'Move main')]")
    browser.send(button.text_content())
    assert read() == b"of dev"
    browser.go(f"/repositories/{name}/branches/delete", b"name=dev")
    browser.follow("Deleted branches")
    browser.send("Restore dev")
    assert browser.url.endswith("objects?ref=dev")


def test_an_administrator_in_the_web_interface(lake_server: RestServer) -> None:
    """Rules, retention, a user with a key of its own, and the end of its sessions, by links and forms alone."""
    name, ann = lake_server.new_name("admin"), lake_server.new_name("ann")
    browser = Browser(f"{lake_server.url}/")
    browser.go("/")
    browser.send("Sign in", key=lake_server.access_key_id, secret=lake_server.secret_access_key)
    browser.go("/repositories", urlencode({"name": name, "branch": "main"}).encode())

    browser.follow("Settings")
    browser.send("Protect", pattern="main", review="1", approvals="1")
    assert "1 approval by others than the author" in browser.text
    browser.send("Set", name="team", value="<lakes>")
    browser.send("Create the view", name=f"{name}-view")
    assert "<lakes>" in browser.text
    browser.follow("Retention")
    rules = '{"branches": [{"match": "*", "keep_days": 90}]}'
    browser.send("Show what would expire", rules=rules)
    assert "0 of 1 commits would expire" in browser.text
    browser.send("Save these rules")
    browser.follow("State")
    assert browser.root.xpath("string(//dt[text()='Staged rows']/following-sibling::dd)")[0] == "0"

    browser.go("/administration")
    browser.follow("Users")
    browser.send("Create the user", {"name": ann, "role-Analyst": "1"})
    browser.send("Create a key pair", description="browser")
    key, secret = browser.root.xpath("//dd/code/text()")
    user = Browser(f"{lake_server.url}/")
    user.go("/")
    user.send("Sign in", key=key, secret=secret)
    user.go(f"/repositories/{name}/settings")
    assert "An administrator changes their rules" in user.text
    user.go("/users", status=403)
    user.go("/account")
    assert key in user.text
    browser.go(f"/user?id={ann}")
    browser.send("End all sessions")
    user.go("/")
    assert user.text.startswith("Sign in")
