"""A browser without scripts: pages of the web interface, their forms and links, over any way to send requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from lxml import html
from rest_service import Answer, Rest

__all__ = ["BOUNDARY", "NAMES", "WebUser", "WebPage", "multipart"]

HERE = {"sec-fetch-site": "same-origin", "host": "tarn.example", "accept": "text/html"}
BOUNDARY = "line-between"
NAMES = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "//evil.example/x",
    "{{ 7 * 7 }}{% raw %}",
    "a\u202ecod.exe",
    "a\nb\tc\u200bd",
    "&amp;%2e%2e?x=1#y",
]
"""Names that a hostile user gives to things."""


def multipart(fields: Mapping[str, str], filename: str, content: bytes) -> bytes:
    """Returns a form with a file, as browsers send it."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    quoted = filename.replace('"', "%22")
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="content"; filename="{quoted}"\r\n'
    )
    head += "Content-Type: application/octet-stream\r\n\r\n"
    return "".join([*parts, head]).encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()


@dataclass(frozen=True)
class WebPage:
    """A page.

    Attributes:
        answer: as it came.
        root: its document.
    """

    answer: Answer
    root: html.HtmlElement

    @property
    def status(self) -> int:
        return self.answer.status

    @property
    def text(self) -> str:
        """What a reader sees, with single spaces."""
        return " ".join(self.root.text_content().split())

    @property
    def links(self) -> list[str]:
        """The targets of everything that can be followed or loaded."""
        found = self.root.iterlinks()
        return [target for _, name, target, _ in found if name != "action" and target != "#main"]

    @property
    def foreign(self) -> list[str]:
        """What would run, load or lead elsewhere than the pages' own files and addresses."""
        wrong = [each for each in self.root.xpath("//@*") if each.attrname.startswith("on")]
        wrong += [each.tag for each in self.root.xpath("//img | //iframe | //style | //base")]
        wrong += [
            str(each.get("src"))
            for each in self.root.xpath("//script")
            if not (each.get("src") or "").startswith("/assets/")
        ]
        targets = [*self.links, *(each.action or "" for each in self.root.forms)]
        return wrong + [each for each in targets if each and not re.match("/(?!/)", each)]

    def rows(self, label: str = "") -> list[list[str]]:
        """The rows of the first table, or of the one with a label, without its head."""
        where = "(//*[@aria-label=$label]//table)[1]" if label else "(//table)[1]"
        return [
            [" ".join(cell.text_content().split()) for cell in row.xpath("td")]
            for row in self.root.xpath(f"{where}/tbody/tr", label=label)
        ]

    def form_of(self, button: str) -> dict[str, str]:
        """The fields of the form that has a button with this text, and its address as `action`."""
        [form] = [
            each
            for each in self.root.forms
            if button in (found.text_content().strip() for found in each.xpath(".//button"))
        ]
        fields = {name: str(value or "") for name, value in form.fields.items()}
        return {"action": form.action, **fields}

    def form(self, button: str) -> tuple[str, dict[str, str]]:
        """The address and the fields of the first form whose button has these words."""
        found = next(
            each
            for each in self.root.forms
            if any(" ".join(b.text_content().split()) == button for b in each.xpath(".//button"))
        )
        fields = {name: str(value) for name, value in found.fields.items() if value is not None}
        return found.action, fields


@dataclass
class WebUser:
    """A person with a browser.

    Attributes:
        rest: the endpoint.
        cookie: of the session; empty without one.
    """

    rest: Rest
    cookie: str = ""

    async def send(
        self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Sends a request as a page of this origin does; an empty header is left out."""
        sent = {**HERE, "cookie": self.cookie, **(headers or {})}
        sent = {name: value for name, value in sent.items() if value}
        return await self.rest.ask(method, target, body, caller=None, headers=sent, base="")

    async def get(self, target: str, **headers: str) -> Answer:
        return await self.send("GET", target, headers=headers)

    async def page(self, target: str) -> WebPage:
        """Opens a page, whatever its status."""
        answer = await self.get(target)
        return WebPage(answer, html.document_fromstring(answer.body))

    async def post(
        self, target: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Sends a form."""
        kind = {"content-type": "application/x-www-form-urlencoded"}
        return await self.send(
            "POST", target, urlencode(fields).encode(), {**kind, **(headers or {})}
        )

    async def fill(self, page: WebPage, button: str, **fields: str) -> Answer:
        """Fills the form of a button in, and sends it. Underscores in names of fields are dashes."""
        action, present = page.form(button)
        given = {name.replace("_", "-"): value for name, value in fields.items()}
        return await self.post(action, {**present, **given})

    async def upload(self, target: str, filename: str, content: bytes, **fields: str) -> Answer:
        """Sends a form with a file."""
        kind = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
        return await self.send("POST", target, multipart(fields, filename, content), kind)

    async def sign_in(
        self, target: str = "/sign-in", pair: tuple[str, str] | None = None
    ) -> Answer:
        """Signs in, as the administrator without a key pair, and keeps the cookie."""
        key, secret = pair or self.rest.service.admin_key
        answer = await self.post(target, {"key": key, "secret": secret})
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer
