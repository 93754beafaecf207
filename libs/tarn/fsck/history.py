"""Refs → commits: checks every commit's row and object, its parents, its generation, and the refs to it."""

from __future__ import annotations

from tarn.aio.parallel import for_each
from tarn.block.port import BlockKey, BlockNotFoundError
from tarn.core.commit import Commit, commit_id_of, commit_path, from_json, to_json
from tarn.core.dump import LINE_BYTES_MAX
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, CommitId, MetarangeId
from tarn.fsck.finding import Code
from tarn.fsck.reflog import commits_of, reflog_commits
from tarn.fsck.session import Lake, or_corrupt, shown
from tarn.fsck.staged import branch_names, read_branch
from tarn.kv.commit_records import decode_commit
from tarn.kv.keys import RepositoryKeys, after_prefix
from tarn.kv.records import decode_tag

__all__ = ["History"]

_COMMITS = b"commits/"


class History:
    """Checks the commits of one repository.

    Every commit that has a row counts as referred to, because it can be read by its id; a commit that no
    ref leads to is a finding of its own. So a moving ref never makes the content of a commit look like an
    orphan.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._reads = lake.session.reads
        self._state = lake.session.state

    async def gather(self) -> None:
        """Reads refs, then commits; known commits are not read again.

        Refs are read first: a commit was durable before a ref named it.
        """
        await self._read_refs()
        if not self._lake.session.options.ref:
            await self._read_rows()
        refs = self._state.all("SELECT name, commit_id FROM refs WHERE uid=?", self._lake.uid)
        for name, commit_id in refs:
            if not await self._want(CommitId(commit_id), name):
                await self._confirm_ref(name, commit_id)
        await self._check_all()
        self._state.save()

    # ---- refs

    async def _read_refs(self) -> None:
        self._state.change("DELETE FROM refs WHERE uid=?", self._lake.uid)
        for branch_id in await branch_names(self._lake):
            branch = await read_branch(self._lake, branch_id)
            if branch is None:
                continue
            self._remember(f"branches/{branch_id}", branch.commit_id, branch.compacted_metarange_id)
            for entry in branch.outbox:
                for commit_id in commits_of(entry):
                    self._remember(f"reflog/{branch_id}/{commit_id}", commit_id, None)
            if branch.compacted_metarange_id is not None:
                self._want_metarange(branch.compacted_metarange_id, f"branch {branch_id}")
        wanted = self._lake.session.options.ref_key
        prefix = self._lake.keys.tag("")
        async for key, value in self._reads.rows(
            self._lake.keys.refs, prefix, after_prefix(prefix)
        ):
            name = shown(key)
            if wanted not in {"", name}:
                continue
            try:
                tag = decode_tag(value)
                if not tag.is_pending:
                    self._remember(name, tag.commit_id, None)
            except TarnError as error:
                or_corrupt(error)
        if not wanted:
            async for branch_name, commit_id in reflog_commits(self._lake):
                self._remember(f"reflog/{branch_name}/{commit_id}", commit_id, None)

    def _remember(self, name: str, commit_id: str, metarange_id: MetarangeId | None) -> None:
        values = (self._lake.uid, name, commit_id, metarange_id or "")
        self._state.change("INSERT OR REPLACE INTO refs VALUES (?, ?, ?, ?)", *values)

    async def _confirm_ref(self, name: str, commit_id: str) -> None:
        """Reports a ref to a missing commit, if a second read confirms it."""
        if name.startswith("reflog/"):
            self._lost(commit_id, f"the reflog of branch {name.split('/')[1]}")
            return
        found = await self._reads.get(self._lake.keys.refs, name.encode())
        if found is None:
            return
        if name.startswith("tags/"):
            now = str(decode_tag(found.value).commit_id)
        else:
            branch = await read_branch(self._lake, BranchId(name.removeprefix("branches/")))
            now = "" if branch is None else str(branch.commit_id)
        if now == commit_id:
            kind, _, ref = name.partition("/")
            noun = "branch" if kind == "branches" else "tag"
            self._lost(commit_id, f"{noun} {ref}")

    # ---- rows

    async def _read_rows(self) -> None:
        progress = self._lake.session.progress
        progress.begin(f"{self._lake.repository.repository_id}: commits")
        end = after_prefix(_COMMITS)
        async for key, value in self._reads.rows(self._lake.keys.commits):
            progress.done += 1
            if key.startswith(RepositoryKeys.EXPIRED):
                commit_id = CommitId(shown(key[len(RepositoryKeys.EXPIRED) :]))
                self._state.change(
                    "INSERT OR IGNORE INTO expired VALUES (?, ?)", self._lake.uid, commit_id
                )
                continue
            if key.startswith(RepositoryKeys.ERASED):
                continue  # looked at by `check_erased`
            if not _COMMITS <= key < end:
                subject = f"{self._lake.keys.commits.name} {shown(key)}"
                self._lake.find(Code.KEY_UNKNOWN, subject, "unknown key layout")
                continue
            commit_id = CommitId(shown(key[len(_COMMITS) :]))
            if not self._knows(commit_id):
                try:
                    self._add(commit_id, _decoded(commit_id, value), "", has_row=True)
                except TarnError as error:
                    or_corrupt(error)
                    await self._want(commit_id, "")

    def _knows(self, commit_id: str) -> bool:
        query = "SELECT 1 FROM commits WHERE uid=? AND commit_id=?"
        return bool(self._state.all(query, self._lake.uid, commit_id))

    def _add(self, commit_id: CommitId, commit: Commit, referrer: str, *, has_row: bool) -> None:
        self._state.change(
            "INSERT OR IGNORE INTO commits (uid, commit_id, parents, metarange_id, generation,"
            " create_time_us, referrer, has_row) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            self._lake.uid,
            commit_id,
            " ".join(commit.parents),
            commit.metarange_id,
            commit.generation,
            commit.create_time_us,
            referrer,
            int(has_row),
        )

    async def _want(self, commit_id: CommitId, referrer: str) -> bool:
        """Makes sure that a commit is known; False if neither its row nor its object can be read."""
        if self._knows(commit_id):
            return True
        subject = f"commit {commit_id}"
        found = await self._reads.get(self._lake.keys.commits, self._lake.keys.commit(commit_id))
        if found is not None:
            try:
                self._add(commit_id, _decoded(commit_id, found.value), referrer, has_row=True)
            except TarnError as error:
                self._lake.find(Code.COMMIT_ROW_DAMAGED, subject, or_corrupt(error))
            else:
                return True
        try:
            body = await self._reads.read(
                BlockKey(self._lake.namespace, commit_path(commit_id)), LINE_BYTES_MAX
            )
            commit = from_json(body)
        except BlockNotFoundError:
            return False
        except TarnError as error:
            or_corrupt(error)
            return False
        if commit_id_of(commit) != commit_id:
            return False
        if found is None and await self._lake.session.is_alive(self._lake.repository):
            text = f"{referrer or 'a listing'} names it; its object exists, but its row does not"
            self._lake.find(Code.COMMIT_ROW_MISSING, subject, text)
        self._add(commit_id, commit, referrer, has_row=False)
        return True

    def _lost(self, commit_id: str, referrer: str) -> None:
        text = f"{referrer} names it; it has no row and no intact object"
        self._lake.find(Code.COMMIT_MISSING, f"commit {commit_id}", text)

    # ---- each commit

    async def _check_all(self) -> None:
        """Checks each commit once; their parents may add more."""
        progress = self._lake.session.progress
        uid = self._lake.uid
        while left := self._state.count(
            "SELECT count(*) FROM commits WHERE uid=? AND NOT done", uid
        ):
            progress.begin(f"{self._lake.repository.repository_id}: commits", left)
            rows = self._state.pages(
                "SELECT commit_id, parents, metarange_id, generation, has_row FROM commits"
                " WHERE uid=? AND NOT done AND commit_id>? ORDER BY commit_id",
                uid,
            )
            await for_each(rows, self._check, self._lake.session.options.concurrency)

    async def _check(self, row: tuple[str, str, str, int, int]) -> None:
        commit_id, parents, metarange_id, generation, has_row = row
        self._want_metarange(MetarangeId(metarange_id), f"commit {commit_id}")
        expected = 0
        for parent in parents.split():
            if not await self._want(CommitId(parent), f"commit {commit_id}"):
                self._lost(parent, f"commit {commit_id}")
                expected = generation
                continue
            above = self._state.count(
                "SELECT generation FROM commits WHERE uid=? AND commit_id=?",
                self._lake.uid,
                parent,
            )
            expected = max(expected, above + 1)
        if generation != expected:
            text = f"its generation is {generation}; by its parents it is {expected}"
            self._lake.find(Code.COMMIT_GENERATION, f"commit {commit_id}", text)
        if has_row:
            await self._check_object(CommitId(commit_id))
        self._state.change(
            "UPDATE commits SET done=1 WHERE uid=? AND commit_id=?", self._lake.uid, commit_id
        )
        self._lake.session.progress.done += 1

    def _want_metarange(self, metarange_id: MetarangeId, referrer: str) -> None:
        self._state.change(
            "INSERT OR IGNORE INTO metaranges (uid, metarange_id, referrer) VALUES (?, ?, ?)",
            self._lake.uid,
            metarange_id,
            referrer,
        )

    async def _check_object(self, commit_id: CommitId) -> None:
        """Checks that a commit's object agrees with its row; the object is written before the row."""
        key = BlockKey(self._lake.namespace, commit_path(commit_id))
        subject = f"commit {commit_id}"
        try:
            body = await self._reads.read(key, LINE_BYTES_MAX)
            commit = from_json(body)
            if commit_id_of(commit) != commit_id or body != to_json(commit):
                text = f"{key.path} holds {commit_id_of(commit)}, or is not encoded as Tarn does"
                raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
        except BlockNotFoundError:
            if await self._has_row(commit_id):
                self._lake.find(Code.COMMIT_OBJECT_MISSING, subject, f"{key.path} does not exist")
        except TarnError as error:
            if await self._has_row(commit_id):
                self._lake.find(Code.COMMIT_OBJECT_DAMAGED, subject, or_corrupt(error))

    async def _has_row(self, commit_id: CommitId) -> bool:
        key = self._lake.keys.commit(commit_id)
        return await self._reads.get(self._lake.keys.commits, key) is not None

    # ---- reachability

    async def find_unreachable(self) -> None:
        """Reports commits that no ref leads to, and that are older than the grace period.

        Such a commit is left by a commit that lost its last compare-and-set, or by a deleted branch whose
        reflog is expired.
        Suspected commits are checked again with refs that are read later than the commits' rows: a ref
        may have been created, or moved, since the refs were read.
        """
        uid, oldest_us = self._lake.uid, self._lake.session.oldest_us
        self._walk()
        if not self._state.change(
            "UPDATE commits SET suspected=1 WHERE uid=? AND NOT reachable AND create_time_us<?",
            uid,
            oldest_us,
        ):
            return
        await self.gather()
        self._walk()
        rows = self._state.pages(
            "SELECT commit_id FROM commits WHERE uid=? AND suspected AND NOT reachable"
            " AND commit_id>? ORDER BY commit_id",
            uid,
        )
        for (commit_id,) in rows:
            self._lake.find(
                Code.COMMIT_ORPHAN, f"commit {commit_id}", "no branch, tag or reflog leads to it"
            )

    def _walk(self) -> None:
        """Marks the commits that are reachable from refs."""
        uid = self._lake.uid
        self._state.change("UPDATE commits SET reachable=0 WHERE uid=? AND reachable", uid)
        heads = self._state.all("SELECT DISTINCT commit_id FROM refs WHERE uid=?", uid)
        front = [commit_id for (commit_id,) in heads]
        while front:
            commit_id = front.pop()
            if self._state.change(
                "UPDATE commits SET reachable=1 WHERE uid=? AND commit_id=? AND NOT reachable",
                uid,
                commit_id,
            ):
                query = "SELECT parents FROM commits WHERE uid=? AND commit_id=?"
                front += self._state.all(query, uid, commit_id)[0][0].split()


def _decoded(commit_id: CommitId, value: bytes) -> Commit:
    """Decodes the commit of a row.

    Raises:
        TarnError: CORRUPT: the value is not a commit, or is another commit.
    """
    commit = decode_commit(value)
    if commit_id_of(commit) != commit_id:
        text = f"its row hashes to {commit_id_of(commit)}"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
    return commit
