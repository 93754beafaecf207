"""Rules of the machine that read history: reflogs, moments, the log with its filters, annotations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import strategies as st
from hypothesis.stateful import rule
from lake_model import RefusedError
from machine_base import NAMES, TAGS, MachineBase, numbers, paths
from model_history import changed_paths, log, origin

from tarn.core.moments import iso_time
from tarn_proto.graveler.v1 import reflog_service_pb2 as pb

_PREFIXES = ["a", "a/", "b/d/", "c/", "e", "x"]


class History(MachineBase):
    """Reads what was."""

    @rule(
        name=st.sampled_from(NAMES),
        size=st.integers(1, 5),
        prefix=st.sampled_from(["", "", "d", "fix", "x"]),
        by=numbers,
    )
    def read_reflog(self, name: str, size: int, prefix: str, by: int) -> None:
        self.reflog(name, size, by)
        self.deleted_branches(size, prefix, by)

    def reflog(self, name: str, size: int, by: int) -> None:
        changes = self.model.reflogs.newest_first(name)

        def expected() -> None:
            if not changes:
                raise RefusedError("BRANCH_NOT_FOUND")

        def page(token: str) -> Awaitable[pb.ListReflogResponse]:
            return self.client(by).list_reflog(
                self.call, self.repository, name, page_size=size, page_token=token
            )

        try:
            _, found = self.both("reflog", expected, _every(page, lambda each: each.entries))
        except RefusedError:
            return
        assert [
            (pb.HeadOperation.Name(each.operation), each.old_commit_id, each.new_commit_id)
            for each in found
        ] == [
            (f"HEAD_OPERATION_{each.operation}", self.id_of(each.old), self.id_of(each.new))
            for each in changes
        ]
        times = [each.time.ToMicroseconds() for each in found]
        assert times == sorted(set(times), reverse=True)

    def deleted_branches(self, size: int, prefix: str, by: int) -> None:
        def page(token: str) -> Awaitable[pb.ListDeletedBranchesResponse]:
            return self.client(by).list_deleted_branches(
                self.call, self.repository, prefix=prefix, page_size=size, page_token=token
            )

        found = self.run(_every(page, lambda each: each.branches))
        assert [(each.branch_id, each.commit_id) for each in found] == [
            (name, self.id_of(head))
            for name, head in self.model.reflogs.deleted().items()
            if name.startswith(prefix)
        ]

    @rule(
        name=st.sampled_from(["main", "dev", *NAMES, *TAGS]),
        count=st.integers(0, 3),
        moment=st.one_of(st.none(), numbers),
        steps=st.integers(0, 1),
        by=numbers,
    )
    def read_moment(self, name: str, count: int, moment: int | None, steps: int, by: int) -> None:
        """Reads `name@{count}`, or `name@{time}` for a moment that the machine has marked."""
        text, head = f"{name}@{{{count}}}", self.head_before(name, count)
        if moment is not None and self.marks:
            mark = self.marks[moment % len(self.marks)]
            text, head = f"{name}@{{{iso_time(mark.time_us)}}}", mark.heads.get(name)

        def expected() -> int:
            if head is None or len(self.model.first_parents(head)) <= steps:
                raise RefusedError("REF_NOT_FOUND")
            return self.model.first_parents(head)[steps]

        work = self.client(by).get_commit(self.call, self.repository, text + "~" * steps)
        try:
            number, commit = self.both("read_moment", expected, work)
        except RefusedError:
            return
        assert commit.commit_id == self.ids[number]

    @rule(
        at=numbers,
        exclude=st.one_of(st.none(), st.none(), numbers),
        symmetric=st.booleans(),
        is_first_parent=st.booleans(),
        wanted=st.lists(paths, max_size=2),
        below=st.lists(st.sampled_from(_PREFIXES), max_size=1),
        since=st.one_of(st.none(), st.none(), numbers),
        until=st.one_of(st.none(), st.none(), numbers),
        size=st.integers(1, 5),
        by=numbers,
    )
    def filtered_log(
        self,
        at: int,
        exclude: int | None,
        symmetric: bool,
        is_first_parent: bool,
        wanted: list[str],
        below: list[str],
        since: int | None,
        until: int | None,
        size: int,
        by: int,
    ) -> None:
        text, commit = self.ref(at)
        hiding, hidden = (None, None) if exclude is None else self.ref(exclude)
        symmetric = symmetric and exclude is not None
        begin, first = self.moment(since, 0)
        end, last = self.moment(until, len(self.model.commits))

        def is_listed(number: int) -> bool:
            if not first <= number < last:
                return False
            changed = changed_paths(self.model, number, first_parent=is_first_parent)
            return not (wanted or below) or any(
                path in wanted or path.startswith(tuple(below)) for path in changed
            )

        def page(token: str) -> Awaitable[Any]:
            return self.client(by).list_commits(
                self.call,
                self.repository,
                text,
                exclude_ref=hiding or "",
                symmetric=symmetric,
                first_parent=is_first_parent,
                since=begin,
                until=end,
                paths=wanted,
                prefixes=below,
                page_size=size,
                page_token=token,
            )

        found = self.run(_every(page, lambda each: each.commits))
        listed = log(self.model, commit, hidden, symmetric=symmetric, first_parent=is_first_parent)
        assert [each.commit_id for each in found] == [
            self.ids[number] for number in listed if is_listed(number)
        ]
        self.outcomes["filtered_log"] += bool(found)

    @rule(at=numbers, size=st.integers(1, 5), below=st.sampled_from(["", *_PREFIXES]), by=numbers)
    def annotate(self, at: int, size: int, below: str, by: int) -> None:
        text, commit = self.ref(at)

        def page(token: str) -> Awaitable[Any]:
            return self.client(by).annotate_paths(
                self.call, self.repository, text, prefix=below, page_size=size, page_token=token
            )

        self.outcomes["annotate"] += 1
        found = self.run(_every(page, lambda each: each.lines))
        assert [(each.path, each.commit.commit_id, each.is_final) for each in found] == [
            (path, self.ids[origin(self.model, commit, path)], True)
            for path in sorted(self.model.commits[commit].contents)
            if path.startswith(below)
        ]

    def moment(self, number: int | None, default: int) -> tuple[Timestamp | None, int]:
        """Chooses a marked moment: its time, and the number of commits then."""
        if number is None or not self.marks:
            return None, default
        mark = self.marks[number % len(self.marks)]
        time = Timestamp()
        time.FromMicroseconds(mark.time_us)
        return time, mark.commit_count

    def id_of(self, number: int | None) -> str:
        return "" if number is None else self.ids[number]


async def _every(page: Callable[[str], Awaitable[Any]], items: Callable[[Any], Any]) -> list[Any]:
    """Returns the items of all pages."""
    found: list[Any] = []
    token = ""
    while True:
        read = await page(token)
        found += items(read)
        if not (token := read.next_page_token):
            return found
