"""Markdown on pages, of users and of the documentation that this server shows."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from lxml import html
from rest_service import Rest
from web_pages import NAMES, WebUser

from tarn_api.web.documents import PARTS, document, titles
from tarn_api.web.markdown import MARKDOWN_BYTES_MAX, html_of, is_markdown

LAKE = "/repositories/lake"
TAGS = {
    *("p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "hr", "br"),
    *("em", "strong", "s", "code", "pre", "a", "div", "table", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {"href", "rel", "class", "id", "start", "role", "aria-label", "tabindex"}
PAGES = [(part, name) for part, pages in titles().items() for name, _ in pages]


def made(text: str, *, answer: str = "") -> html.HtmlElement:
    """Renders a text of a user; each link that the page takes leads to `answer`."""
    return html.fragment_fromstring(
        html_of(text, lambda _: answer, headings_below=2), create_parent="main"
    )


def checked(root: html.HtmlElement) -> html.HtmlElement:
    assert {each.tag for each in root.iterdescendants()} <= TAGS
    assert {each.attrname for each in root.xpath(".//@*")} <= ATTRIBUTES
    return root


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "# {}",
        "<b onclick=alert(1)>{}</b><style>*{{}}</style>",
        "[x]({})",
        "[{}](javascript:alert(1))",
        '[x](<{}> "{}")',
        "![{}]({})",
        "[x][1]\n\n[1]: {} '{}'",
        "```{} onmouseover=alert(1)\n{}\n```",
        "| a |\n| --: |\n| {} |",
        "    {}",
        "<http://{}>",
    ],
)
def test_nothing_of_a_text_is_a_tag_an_address_or_hidden(text: str, name: str) -> None:
    root = checked(made(text.replace("{}", name).replace("{{", "{").replace("}}", "}")))
    assert root.xpath(".//a") == []
    assert not set("\u202e\u200b") & set(root.text_content())


def test_links_are_those_of_the_page() -> None:
    root = checked(made("[a](b.md) ![c](d.png) <https://e.example>", answer="/object?path=x"))
    assert root.xpath(".//a/@href") == ["/object?path=x"] * 3
    assert root.text_content().strip() == "a [picture: c] https://e.example"
    refused = made("[bank](https://evil.example/) <https://e.example>").text_content()
    assert refused.strip() == "bank (https://evil.example/) https://e.example"


def test_texts_have_their_structure_and_headings_stand_below_that_of_the_page() -> None:
    root = made("# a\n\n- *b* **c**\n\n|d|e|\n|-|-:|\n|1|2|\n\n3. f\n\n```py\ng\n```\n")
    assert root.xpath("string(.//h3)") == "a"
    assert not root.xpath(".//h3/@id")
    assert root.xpath(".//td/@class") == ["number"]
    assert root.xpath(".//ol/@start") == ["3"]
    assert root.xpath("string(.//li/em)") == "b"
    assert root.xpath("string(.//pre[@tabindex])") == "g\n"


@pytest.mark.parametrize(
    "text",
    [
        "[a]: /" + "x" * 15_000 + "\n" + "[a]" * 5000,
        "[a]: /" + "x" * 1000 + "\n" + "[a]" * 10_000,
        "|a" * 500 + "\n" + "|-" * 500 + "\n" + "|\n" * 15_000,
        ">" * 30_000,
        "![" * 15_000,
    ],
)
def test_a_page_stays_small(text: str) -> None:
    text = text[:MARKDOWN_BYTES_MAX]
    assert len(html_of(text, lambda href: f"/object?path={href}")) < 1024 * 1024


def test_markdown_is_known_by_its_name_or_type() -> None:
    assert is_markdown("a/README.MD", "")
    assert is_markdown("a", "text/markdown; charset=utf-8")
    assert not is_markdown("md", "text/plain")


async def test_a_preview_leads_to_objects_of_its_ref(rest: Rest) -> None:
    user = WebUser(rest)
    await user.sign_in()
    text = b"# Read me\n\n[up](../data/a%20b.csv) [out](../../x) [abs](/y) [js](javascript:z) <img src=x>"
    for path, content in (("notes/a.md", text), ("b.md", b"x" * (MARKDOWN_BYTES_MAX + 1))):
        await user.upload(f"{LAKE}/upload?branch=main", "f", content, path=path)
    page = await user.page(f"{LAKE}/object?ref=main&path=notes%2Fa.md")
    [article] = page.root.xpath("//article")
    assert article.xpath("string(.//h3)") == "Read me"
    assert article.xpath(".//a/@href") == [f"{LAKE}/object?ref=main&path=data%2Fa%20b.csv"]
    assert "out (../../x) abs (/y)" in " ".join(article.text_content().split())
    assert page.foreign == []
    # The source stays in sight, and what is too long is shown as text.
    assert "[up](../data/a%20b.csv)" in page.root.xpath("string(//pre)")
    page = await user.page(f"{LAKE}/object?ref=main&path=b.md")
    assert (page.status, page.root.xpath("//article")) == (200, [])


async def test_busy_previews_fall_back_to_text(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    user = WebUser(rest)
    await user.sign_in()
    await user.upload(f"{LAKE}/upload?branch=main", "f", b"# Read me", path="a.md")
    monkeypatch.setattr("tarn_api.web.pages.objects._DOCUMENT_SECONDS", 0.01)
    async with rest.endpoint._backend.reading_markdown:
        page = await user.page(f"{LAKE}/object?ref=main&path=a.md")
    assert page.root.xpath("string(//pre)").strip() == "# Read me"


@pytest.mark.parametrize(("part", "name"), PAGES, ids=str)
def test_documents_lead_to_documents(part: str, name: str) -> None:
    """Each link of the documentation leads to a page and a heading that are there, or out by TLS."""
    root = checked(html.fragment_fromstring(document(part, name).body, create_parent="main"))
    for href in root.xpath(".//a/@href"):
        url = urlsplit(href)
        if url.scheme:
            assert url.scheme == "https"
            continue
        target = root
        if url.path:
            _, docs, other_part, other = url.path.split("/")
            assert docs == "docs"
            other_body = document(other_part, other).body
            target = html.fragment_fromstring(other_body, create_parent="main")
        assert not url.fragment or target.xpath(".//*[@id=$id]", id=url.fragment), href


async def test_help_is_one_click_away_and_needs_no_session(rest: Rest) -> None:
    user = WebUser(rest)
    page = await user.page("/docs")
    assert page.status == 200
    assert len(page.root.xpath("//main//li/a")) == len(PAGES)
    assert set(PARTS) == {"user", "operate"}
    for target in ("/docs/user/nothing", "/docs/design/protocol", "/docs/user/..%2Fweb"):
        assert (await user.page(target)).status == 404
    await user.sign_in()
    for target in ("/", f"{LAKE}/connect", f"{LAKE}/settings", f"{LAKE}/commits?ref=main"):
        page = await user.page(target)
        [href] = page.root.xpath("//header//a[text()='Help']/@href")
        page = await user.page(href)
        assert page.status == 200
        assert page.root.xpath("string(//h1)")
