"""Records answers to reads as operations of a history: single paths, and pages of listings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from lxml import etree
from tests.support.check.history import ABSENT, Op, OpKind, Outcome

from chaos.ledger import Ledger
from chaos.wire import Answer

__all__ = ["finish_read", "finish_unread", "note_of", "page_of", "read_page"]


def note_of(answer: Answer) -> str:
    """Describes an answer that is not a success."""
    return "" if answer.status < 300 else f"{answer.status} {answer.code}".strip()


def finish_unread(ledger: Ledger, op: Op, note: str) -> None:
    """Finishes a read without an answer."""
    ledger.history.finish(op, Outcome.INFO, note)


def finish_read(ledger: Ledger, op: Op, method: str, answer: Answer) -> Outcome:
    """Finishes a GET or HEAD of one path."""
    if answer.status == 200:
        if method == "GET":
            op.value = ledger.value_in(answer.body, answer.etag)
        else:
            op.value = ledger.value_of(answer.etag, int(answer.headers["content-length"]))
    elif answer.status == 404 and answer.code in ("NoSuchKey", ""):
        op.value = ABSENT
    else:
        finish_unread(ledger, op, note_of(answer))
        if answer.status < 500:
            ledger.problems.append(f"a read was refused: {op.line()}")
        return Outcome.INFO
    ledger.history.finish(op, Outcome.OK, method.lower())
    return Outcome.OK


def page_of(ledger: Ledger, ref: str, answer: Answer) -> tuple[dict[str, int], str | None]:
    """Returns the values on a page of a ref, by path, and the token of the next page (None at the end)."""
    page = etree.fromstring(answer.body)
    pairs: list[tuple[str, int]] = []
    for line in page.iterfind("{*}Contents"):
        path = line.findtext("{*}Key", "").removeprefix(f"{ref}/")
        size = int(line.findtext("{*}Size", "-1"))
        pairs.append((path, ledger.value_of(line.findtext("{*}ETag", ""), size)))
    listed = ledger.history.lines(f"a page of {ref}", pairs)
    return listed, page.findtext("{*}NextContinuationToken") or None


async def read_page(
    ask: Callable[..., Awaitable[Answer]],
    ledger: Ledger,
    proc: str,
    branch: str,
    *,
    prefix: str = "",
    limit: int = 1000,
    token: str = "",
    after: str = "",
) -> tuple[str | None, str]:
    """Reads one page of ListObjectsV2, as a read of each path that it covers, listed or not.

    Pages are read at different times, so each is a separate read.

    Args:
        ask: `S3Client.ask`, after `ready`.
        ledger: record of the reads.
        proc: name of the client.
        branch: the listed branch.
        prefix: prefix inside the branch.
        limit: greatest number of keys.
        token: token of the page before; empty for the first page.
        after: last path of the page before.

    Returns:
        The token of the next page (None at the end), and the last path of this page.

    Raises:
        LostError: no answer.
    """
    began = ledger.history.tick()
    query = {"list-type": "2", "prefix": f"{branch}/{prefix}", "max-keys": str(limit)}
    answer = await ask("GET", "", {**query, "continuation-token": token} if token else query)
    if answer.status != 200:
        ledger.count("page", Outcome.INFO, note_of(answer))
        if answer.status < 500:
            ledger.problems.append(f"a listing of {branch} was refused: {note_of(answer)}")
        return None, ""
    listed, following = page_of(ledger, branch, answer)
    last = max(listed, default="")
    for path in sorted(ledger.keys[branch] | listed.keys()):
        is_covered = path.startswith(prefix) and path > after
        if not is_covered or (following is not None and path > last):
            continue
        op = ledger.history.begin(
            proc, OpKind.LIST, branch, path, listed.get(path, ABSENT), inv=began
        )
        ledger.history.finish(op, Outcome.OK)
    if not all(path.startswith(prefix) and path > after for path in listed):
        ledger.problems.append(f"a page of {branch}/{prefix} after {after!r} has {sorted(listed)}")
    ledger.count("page", Outcome.OK)
    return following, last
