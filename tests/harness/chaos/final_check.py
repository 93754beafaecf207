"""The quiet end: reads, commits and reads everything again, and reads every commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from tests.support.check.history import Commit

from chaos.clients import Client
from chaos.ledger import Ledger
from chaos.metadata import Metadata
from chaos.reads import page_of
from chaos.s3 import S3Client, Target
from tarn.core.errors import Kind, TarnError
from tarn_proto.graveler.v1 import commit_service_pb2 as pb

__all__ = ["FinalCheck"]

T = TypeVar("T")


class FinalCheck:
    """Reads without other clients: every failure here is a problem.

    Args:
        target: the installation.
        ledger: the history.
        last: a client with unlimited patience.
        readers: further connections, for the commits.
        metadata: client for commits and history.
    """

    def __init__(
        self,
        target: Target,
        ledger: Ledger,
        last: Client,
        readers: Sequence[S3Client],
        metadata: Metadata,
    ) -> None:
        self._target = target
        self._ledger = ledger
        self._last = last
        self._readers = readers
        self._metadata = metadata

    async def at_branches(self) -> None:
        """Reads every path, alone and in a listing."""
        began = len(self._ledger.history.ops)
        for branch in self._target.branches:
            for key in sorted(self._ledger.keys[branch]):
                await self._last.get(branch, key)
            await self._last.list_all(branch, "", 1000)
        self._must_be_ok(began)

    async def commit(self) -> None:
        """Commits each branch."""
        began = len(self._ledger.history.ops)
        for branch in self._target.branches:
            await self._last.commit(branch, "")
        self._must_be_ok(began)

    def _must_be_ok(self, began: int) -> None:
        for op in self._ledger.history.ops[began:]:
            if not op.is_ok:
                self._ledger.problems.append(f"at the quiet end: {op.line()}")

    async def at_commits(self) -> None:
        """Fills in the commits and heads of the history, and reads each object that a commit names."""
        history = self._ledger.history
        found: dict[str, pb.Commit] = {}
        for branch in self._target.branches:
            log = await self._metadata.log(branch)
            history.heads[branch] = log[0].commit_id
            found |= {commit.commit_id: commit for commit in log}
        for commit_id in {op.commit_id for op in history.ops if op.commit_id} - found.keys():
            found |= await self._stray(commit_id)
        await self._share(self._read_commit, found.values())
        objects: dict[tuple[str, int], str] = {}
        for commit in history.commits.values():
            for path, value in commit.contents.items():
                objects[path, value] = f"{commit.commit_id}/{path}"
        await self._share(self._read_object, objects.values())

    async def _stray(self, commit_id: str) -> dict[str, pb.Commit]:
        """Returns a commit that no branch descends from; empty if it does not exist, which the checker
        handles.
        """
        try:
            return {commit.commit_id: commit for commit in await self._metadata.log(commit_id)}
        except TarnError as error:
            if error.kind is not Kind.NOT_FOUND:
                raise
            return {}

    async def _share(
        self, work: Callable[[S3Client, T], Awaitable[None]], items: Iterable[T]
    ) -> None:
        """Distributes items over the readers."""
        left = iter([*items])

        async def read(reader: S3Client) -> None:
            for item in left:
                await reader.ready()
                await work(reader, item)

        async with asyncio.TaskGroup() as group:
            for reader in self._readers:
                group.create_task(read(reader))

    async def _read_commit(self, reader: S3Client, commit: pb.Commit) -> None:
        lines: list[tuple[str, int]] = []
        query = {"list-type": "2", "prefix": f"{commit.commit_id}/"}
        token: str | None = ""
        while token is not None:
            more = {"continuation-token": token} if token else {}
            answer = await reader.ask("GET", "", {**query, **more})
            if answer.status != 200:
                text = f"commit {commit.commit_id}: {answer.status} {answer.code}"
                self._ledger.history.dangling.append(text)
                return
            listed, token = page_of(self._ledger, commit.commit_id, answer)
            lines += listed.items()
        contents = self._ledger.history.lines(f"commit {commit.commit_id}", lines)
        self._ledger.history.commits[commit.commit_id] = Commit(
            commit.commit_id, commit.message, tuple(commit.parent_ids), contents
        )

    async def _read_object(self, reader: S3Client, key: str) -> None:
        answer = await reader.ask("GET", key)
        commit_id, _, path = key.partition("/")
        expected = self._ledger.history.commits[commit_id].contents[path]
        if answer.status != 200 or self._ledger.value_in(answer.body, answer.etag) != expected:
            text = f"{key}: {answer.status} {answer.code} instead of v{expected}"
            self._ledger.history.dangling.append(text)
