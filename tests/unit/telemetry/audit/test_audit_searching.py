"""The search of the audit log: what it finds, in which order, page by page, and where it stops."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from audit_records import BEGIN_US, audit_record, write_audit

from tarn.core.errors import Reason, TarnError
from tarn.telemetry.audit import searching
from tarn.telemetry.audit.record import Outcome, line_of
from tarn.telemetry.audit.searching import AuditPage, AuditQuery, search_audit


def found(page: AuditPage) -> list[int]:
    return [int(str(each["request_id"])[1:]) for each in page.records]


def search(folder: Path, query: AuditQuery | None = None, records_max: int = 100) -> AuditPage:
    return search_audit(folder, query or AuditQuery(), lambda: 0.0, records_max=records_max)


def test_a_folder_that_is_not_there_has_no_record(tmp_path: Path) -> None:
    page = search(tmp_path / "none")
    assert (page.records, page.before_us, page.processes, page.stopped) == ([], None, (), False)


def test_records_of_all_processes_come_newest_first(tmp_path: Path) -> None:
    write_audit(tmp_path, "node", *(audit_record(each) for each in (1, 4, 9)))
    write_audit(tmp_path, "compactor", *(audit_record(each) for each in (2, 3, 10)))
    page = search(tmp_path)
    assert found(page) == [10, 9, 4, 3, 2, 1]
    assert page.processes == ("compactor-0", "node-0")


@pytest.mark.parametrize("seed", range(5))
def test_pages_have_each_record_once_also_if_files_are_renamed_meanwhile(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    wanted: list[int] = []
    times = {"node": 0, "gateway": 0}

    def more() -> None:
        for service in list(times):
            made = []
            for _ in range(150):
                times[service] += rng.choice((0, 1, 1, 7))
                made.append(times[service])
            write_audit(tmp_path, service, *map(audit_record, made), size_max=9_000)
            wanted.extend(made)

    more()
    expected = sorted(wanted, reverse=True)
    got: list[int] = []
    query = AuditQuery()
    for _ in range(2000):
        page = search(tmp_path, query, records_max=rng.randint(1, 40))
        got += found(page)
        if page.before_us is None:
            break
        query = AuditQuery(before_us=page.before_us)
        if len(got) < 100:
            for service, at in times.items():
                times[service] = max(at, 10_000)
            more()  # later ones, which move the files on
    assert got == expected


def test_each_end_of_a_search_is_found_by_bisection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "_BLOCK", 700)
    monkeypatch.setattr(searching, "_PROBE", 600)
    rng = random.Random(3)
    times = list(itertools.accumulate(rng.choice((0, 1, 2)) for _ in range(200)))
    write_audit(
        tmp_path,
        "node",
        *(audit_record(each, principal="x" * rng.randint(0, 200)) for each in times),
    )
    for end in range(-1, times[-1] + 3):
        page = search(tmp_path, AuditQuery(before_us=BEGIN_US + end), records_max=1000)
        assert found(page) == sorted((each for each in times if each < end), reverse=True)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (AuditQuery(user="ben"), [2]),
        (AuditQuery(operation="BranchService."), [3]),
        (AuditQuery(operation="BranchService.CreateBranch"), [3]),
        (AuditQuery(resource="repository/lake"), [3, 2, 1]),
        (AuditQuery(resource="repository/lake/"), [2, 1]),
        (AuditQuery(resource="repository/la"), []),
        (AuditQuery(resource="bucket/b"), [4]),
        (AuditQuery(outcome="denied"), [4]),
        (AuditQuery(user="ada", outcome="ok"), [3, 1]),
        (AuditQuery(from_us=BEGIN_US + 3), [4, 3]),
        (AuditQuery(from_us=BEGIN_US + 2, before_us=BEGIN_US + 4), [3, 2]),
    ],
)
def test_a_search_has_filters(tmp_path: Path, query: AuditQuery, wanted: list[int]) -> None:
    write_audit(
        tmp_path,
        "node",
        audit_record(1),
        audit_record(2, principal="ben"),
        audit_record(3, operation="BranchService.CreateBranch", resource="repository/lake"),
        audit_record(4, resource="bucket/b", outcome=Outcome.DENIED),
    )
    assert found(search(tmp_path, query)) == wanted


def test_a_page_that_the_bounds_end_says_so_and_the_next_ones_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "_BLOCK", 4096)
    monkeypatch.setattr(searching, "_PROBE", 1024)
    write_audit(tmp_path, "node", *(audit_record(each // 2) for each in range(3000)))
    got: list[int] = []
    stops = 0
    query = AuditQuery(user="ada")
    for _ in range(100):
        page = search_audit(tmp_path, query, lambda: 0.0, records_max=10_000, bytes_max=200_000)
        assert page.bytes_read <= 200_000 + 4096
        got += found(page)
        stops += page.stopped
        assert page.stopped is (page.before_us is not None)
        if page.before_us is None:
            break
        query = AuditQuery(user="ada", before_us=page.before_us)
    assert got == sorted((each // 2 for each in range(3000)), reverse=True)
    assert stops > 1


def test_a_search_ends_in_time(tmp_path: Path) -> None:
    write_audit(tmp_path, "node", *(audit_record(each) for each in range(3000)))
    ticks = itertools.count()
    page = search_audit(
        tmp_path, AuditQuery(user="none"), lambda: float(next(ticks)), records_max=10, seconds_max=3
    )
    assert (page.records, page.stopped) == ([], True)
    assert page.before_us is not None


def test_what_is_no_record_is_counted_and_passed_over(tmp_path: Path) -> None:
    write_audit(tmp_path, "node", audit_record(1), audit_record(2))
    with (tmp_path / "node-0.jsonl").open("ab") as file:
        file.write(b"x\n" + b"[" * 200_000 + b"\n" + b'{"time":"2026-99-99T99:99:99.999999Z"}\n')
        file.write(line_of("node", audit_record(3)).encode() + b'{"audit":1,"time":"20')
    (tmp_path / "notes.txt").write_text("not mine")
    (tmp_path / "link-0.jsonl").mkdir()
    with pytest.raises(TarnError) as caught:
        search(tmp_path)
    assert caught.value.reason is Reason.UNAVAILABLE
    (tmp_path / "link-0.jsonl").rmdir()
    page = search(tmp_path)
    assert found(page) == [3, 2, 1]
    assert page.unreadable >= 3


def test_no_link_leads_out_of_the_folder(tmp_path: Path) -> None:
    write_audit(tmp_path / "other", "node", audit_record(1))
    folder = tmp_path / "audit"
    folder.mkdir()
    (folder / "node-0.jsonl").symlink_to(tmp_path / "other" / "node-0.jsonl")
    with pytest.raises(TarnError):
        search(folder)


def test_too_many_files_are_refused_and_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "FILES_MAX", 3)
    write_audit(tmp_path, "node", *(audit_record(each) for each in range(100)), size_max=4096)
    with pytest.raises(TarnError) as caught:
        search(tmp_path)
    assert caught.value.reason is Reason.OVERLOADED
