"""The clients of a run: each follows a plan from its seed, with unique values, one request after another.

An answer is `ok` (2xx), `fail` (a 4xx that says that nothing was done) or unknown; requests are never
repeated.
"""

from __future__ import annotations

import asyncio
import random
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import md5
from xml.sax.saxutils import escape

from lxml import etree
from tests.support.check.history import ABSENT, Op, OpKind, Outcome

from chaos.ledger import Ledger
from chaos.metadata import Metadata
from chaos.reads import finish_read, finish_unread, note_of, read_page
from chaos.s3 import LostError, S3Client
from chaos.wire import Answer
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["Client", "Habits"]

_SURE_STATUS = frozenset({400, 403, 404, 405, 411, 412, 416})
"""Statuses after which nothing was done. 408, 409 and 429 do not guarantee that."""

_UNSURE = frozenset({Kind.DEADLINE, Kind.UNKNOWN_OUTCOME, Kind.CORRUPT, Kind.INTERNAL})
"""Kinds of errors after which the outcome is unknown (`tarn.core.errors`)."""

_HASTE_SECONDS = 0.02


def outcome_of(answer: Answer) -> Outcome:
    """Returns what an answer says about the effect of its request."""
    if 200 <= answer.status < 300:
        return Outcome.OK
    return Outcome.FAIL if answer.status in _SURE_STATUS else Outcome.INFO


@dataclass(frozen=True, slots=True)
class Habits:
    """The behaviour of clients.

    Attributes:
        keys: paths that all of them write.
        patience_seconds: time after which they hang up.
        haste_rate: share of requests that they give up within some milliseconds.
        rides: requests on one connection, on average.
        think_seconds: pause between two requests, on average.
        weights: relative frequency of operations, by the method of `Client`.
    """

    keys: tuple[str, ...] = tuple(f"t{n % 4}/k{n:02}" for n in range(16))
    patience_seconds: float = 4.0
    haste_rate: float = 0.02
    rides: int = 12
    think_seconds: float = 0.004
    weights: Mapping[str, float] = field(
        default_factory=lambda: {
            "put": 6,
            "get": 4,
            "head": 2,
            "delete": 3,
            "delete_many": 1,
            "walk": 1.5,
            "copy": 3,
            "commit": 1,
        }
    )


class Client:
    """Does one operation after another.

    Copies use a source of the client's own, which no other client writes and whose last write was
    acknowledged. So even a copy whose answer is lost has one possible value, and a copy of an older value
    is detected.
    """

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        s3: S3Client,
        metadata: Metadata,
        branches: Sequence[str],
        habits: Habits,
        rng: random.Random,
    ) -> None:
        self.name = name
        self._ledger = ledger
        self._s3 = s3
        self._metadata = metadata
        self._branches = branches
        self._habits = habits
        self._random = rng
        self._own_branch = rng.choice(branches)
        self._own_number = 0
        self._own_value: int | None = None

    async def run(self, end: asyncio.Event) -> None:
        """Runs until `end` is set."""
        weights = self._habits.weights
        while not end.is_set():
            (act,) = self._random.choices([*weights], [*weights.values()])
            branch = self._random.choice(self._branches)
            await getattr(self, act)(branch, self._random.choice(self._habits.keys))
            await asyncio.sleep(self._random.expovariate(1 / self._habits.think_seconds))
        self._s3.close()

    async def _ask(
        self,
        method: str,
        key: str,
        query: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """Sends one request. A few are given up immediately, as by a client that dies.

        Raises:
            LostError: no answer.
        """
        listed = (query or {}).get("prefix")
        what = f"LIST {listed}" if listed else f"{method} {key}".strip()
        with self._ledger.timed(f"{what} ({len(body)} bytes)" if body else what) as timed:
            answer = await self._s3.ask(
                method, key, query, headers=headers, body=body, patience_seconds=self._haste()
            )
            timed.answer = note_of(answer) or str(answer.status)
            return answer

    def _haste(self) -> float | None:
        """Returns the time after which this request is given up; None for most requests."""
        if self._random.random() >= self._habits.haste_rate:
            return None
        return self._random.uniform(0.0005, _HASTE_SECONDS)

    def _finish(self, what: str, op: Op, outcome: Outcome, note: str = "") -> None:
        self._ledger.history.finish(op, outcome, " ".join(filter(None, [what, note])))
        self._ledger.count(what, outcome, note)
        if outcome is Outcome.FAIL and what != "commit":
            self._ledger.problems.append(f"an unexpected refusal: {op.line()}")

    def _size(self) -> int:
        if self._random.random() < 0.03:
            return self._random.randrange(100_000, 1_000_000)
        return self._random.randrange(10, 3000)

    async def put(self, branch: str, key: str) -> Outcome:
        """Writes a new value."""
        value, body = self._ledger.new_value(self._size())
        return await self._put(branch, key, value, body)

    async def _put(self, branch: str, key: str, value: int, body: bytes) -> Outcome:
        await self._s3.ready()
        op = self._ledger.begin(self.name, OpKind.PUT, branch, key, value)
        try:
            answer = await self._ask("PUT", f"{branch}/{key}", body=body)
        except LostError as error:
            self._finish("put", op, Outcome.INFO, str(error))
            return Outcome.INFO
        outcome = outcome_of(answer)
        if outcome is Outcome.OK:
            self._ledger.value_of(answer.etag, len(body))
        self._finish("put", op, outcome, note_of(answer))
        return outcome

    async def copy(self, branch: str, key: str) -> None:
        """Copies the client's own object, new or unchanged, to a path, possibly of another branch."""
        own = f"own/{self.name}-{self._own_number}"
        if self._own_value is None or self._random.random() < 0.4:
            value, body = self._ledger.new_value(self._size())
            self._own_value = None
            if await self._put(self._own_branch, own, value, body) is not Outcome.OK:
                self._own_number += 1  # the object under this number may change at any time
                return
            self._own_value = value
        await self._s3.ready()
        op = self._ledger.begin(self.name, OpKind.PUT, branch, key, self._own_value)
        read = self._ledger.begin(self.name, OpKind.GET, self._own_branch, own)
        source = f"/{self._s3.repository}/{self._own_branch}/{own}"
        try:
            answer = await self._ask(
                "PUT", f"{branch}/{key}", headers={"x-amz-copy-source": source}
            )
        except LostError as error:
            finish_unread(self._ledger, read, str(error))
            self._finish("copy", op, Outcome.INFO, str(error))
            return
        outcome = outcome_of(answer)
        if outcome is Outcome.OK:
            found = etree.fromstring(answer.body).findtext("{*}ETag") or ""
            op.value = read.value = self._ledger.value_of(found)
            self._ledger.history.finish(read, Outcome.OK, "source of a copy")
        elif answer.code == "NoSuchKey":
            read.value = ABSENT
            self._ledger.history.finish(read, Outcome.OK, "source of a copy")
        else:
            finish_unread(self._ledger, read, note_of(answer))
        self._finish("copy", op, outcome, note_of(answer))

    async def delete(self, branch: str, key: str) -> None:
        """Deletes one path."""
        await self._s3.ready()
        op = self._ledger.begin(self.name, OpKind.DELETE, branch, key, ABSENT)
        try:
            answer = await self._ask("DELETE", f"{branch}/{key}")
        except LostError as error:
            self._finish("delete", op, Outcome.INFO, str(error))
        else:
            self._finish("delete", op, outcome_of(answer), note_of(answer))

    async def delete_many(self, branch: str, _key: str) -> None:
        """Deletes several paths in one request, each with its own outcome."""
        keys = self._random.sample(self._habits.keys, self._random.randint(2, 6))
        objects = "".join(
            f"<Object><Key>{escape(f'{branch}/{key}')}</Key></Object>" for key in keys
        )
        body = f"<Delete>{objects}</Delete>".encode()
        await self._s3.ready()
        ops = {
            f"{branch}/{key}": self._ledger.begin(self.name, OpKind.DELETE, branch, key, ABSENT)
            for key in keys
        }
        headers = {"content-md5": b64encode(md5(body, usedforsecurity=False).digest()).decode()}
        try:
            answer = await self._ask("POST", "", {"delete": ""}, headers=headers, body=body)
        except LostError as error:
            for op in ops.values():
                self._finish("delete many", op, Outcome.INFO, str(error))
            return
        failed: dict[str, str] = {}
        if answer.status == 200:
            errors = etree.fromstring(answer.body).iterfind("{*}Error")
            failed = {e.findtext("{*}Key", ""): e.findtext("{*}Code", "") for e in errors}
        for key, op in ops.items():
            if key in failed:  # its code has no status, so the outcome is unknown
                self._finish("delete many", op, Outcome.INFO, failed[key])
            else:
                self._finish("delete many", op, outcome_of(answer), note_of(answer))

    async def get(self, branch: str, key: str) -> None:
        """Reads one path with its bytes."""
        await self._read("GET", branch, key)

    async def head(self, branch: str, key: str) -> None:
        """Reads one path without its bytes."""
        await self._read("HEAD", branch, key)

    async def _read(self, method: str, branch: str, key: str) -> None:
        await self._s3.ready()
        op = self._ledger.begin(self.name, OpKind.GET, branch, key)
        try:
            answer = await self._ask(method, f"{branch}/{key}")
        except LostError as error:
            finish_unread(self._ledger, op, str(error))
            self._ledger.count(method.lower(), Outcome.INFO, str(error))
        else:
            outcome = finish_read(self._ledger, op, method, answer)
            self._ledger.count(method.lower(), outcome, note_of(answer))

    async def walk(self, branch: str, key: str) -> None:
        """Lists everything or a folder, page by page."""
        await self.list_all(
            branch, self._random.choice(["", "", key[:3]]), self._random.choice([2, 7, 1000])
        )

    async def list_all(self, branch: str, prefix: str, limit: int) -> None:
        """Reads every page of a listing, or those before the first lost answer."""
        token: str | None = ""
        after = ""
        while token is not None:
            await self._s3.ready()
            try:
                token, after = await read_page(
                    self._ask,
                    self._ledger,
                    self.name,
                    branch,
                    prefix=prefix,
                    limit=limit,
                    token=token,
                    after=after,
                )
            except LostError as error:
                self._ledger.count("page", Outcome.INFO, str(error))
                return

    async def commit(self, branch: str, _key: str) -> None:
        """Commits the branch."""
        await self._metadata.ready()
        op = self._ledger.begin(self.name, OpKind.COMMIT, branch)
        patience = self._haste() or self._habits.patience_seconds
        try:
            with self._ledger.timed(f"COMMIT {branch}"):
                op.commit_id = await self._metadata.commit(branch, f"#{op.number}", patience)
        except TarnError as error:
            if error.reason is Reason.NOTHING_TO_COMMIT:
                op.commit_id, op.is_claim = error.metadata["commit_id"], True
                self._finish("commit", op, Outcome.OK, "nothing to commit")
                return
            outcome = Outcome.INFO if error.kind in _UNSURE else Outcome.FAIL
            if outcome is Outcome.FAIL:
                op.reason = error.reason
            self._finish("commit", op, outcome, error.kind.name)
        else:
            self._finish("commit", op, Outcome.OK)
