"""A recorded repository of lakeFS, brought over with its history."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from graveler_service import Service, running_service
from lakefs_lab import NAMESPACE, Recorded, opened, recorded, shown

from tarn.core.entry import Entry
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.rules import Rules, Settings
from tarn.lakefs import importing
from tarn.lakefs.conversion import entry_from
from tarn.lakefs.history import DumpIds
from tarn.lakefs.records import PeerEntry
from tarn.lakefs.server import protections_of
from tarn.lakefs.source import FolderSource
from tarn.lakefs.state import CopiedBlock, ImportState
from tarn.snapshot.repository.transfer import Transfer


class KilledError(Exception):
    """The import dies here."""


async def absent(service: Service) -> bool:
    """Whether users do not see the repository."""
    try:
        await service.graveler.get_repository(service.admin, "shop")
    except TarnError as error:
        return error.reason is Reason.REPOSITORY_NOT_FOUND
    return False


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(tmp_path / "service") as made:
        yield made


@pytest.fixture
def record(tmp_path: Path) -> Recorded:
    return recorded(tmp_path)


async def test_all_refs_show_in_tarn_what_they_show_in_lakefs(
    service: Service, record: Recorded, tmp_path: Path
) -> None:
    async with opened(service, record, tmp_path / "work") as (bringing, history, _):
        done = await bringing.run()
    assert (done.branches, done.tags, done.commits) == (3, 2, 8)
    assert await shown(service) == record.seen
    assert history.progress.unverified == 0


async def test_an_import_that_is_killed_again_and_again_goes_on(
    service: Service, record: Recorded, tmp_path: Path
) -> None:
    class Dying(FolderSource):
        """Dies after some reads."""

        left = 0

        def _open(self, address: str) -> int:
            if self.left == 0:
                raise KilledError
            self.left -= 1
            return super()._open(address)

    kills, source, done = 0, Dying(record.folder), None
    while done is None:
        source.left = 7 + 5 * kills
        try:
            async with opened(service, record, tmp_path / "work", source) as (bringing, _, _):
                done = await bringing.run()
        except (KilledError, BaseExceptionGroup):
            kills += 1
            assert await absent(service)
    assert kills > 5
    assert (done.branches, done.tags, done.commits) == (3, 2, 8)
    assert await shown(service) == record.seen


async def test_an_import_whose_calls_of_a_restore_are_lost_goes_on(
    service: Service, record: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call is made, and its answer is lost: once at each call."""
    for name in ("begin_restore", "restore_records", "finish_restore"):
        call = getattr(service.graveler, name)

        async def lost(*arguments: Any, call: Any = call, **more: Any) -> None:
            await call(*arguments, **more)
            raise KilledError

        with monkeypatch.context() as patched:
            patched.setattr(service.graveler, name, lost)
            with pytest.raises(KilledError):
                async with opened(service, record, tmp_path / "work") as (bringing, _, _):
                    await bringing.run()
    async with opened(service, record, tmp_path / "work") as (bringing, history, _):
        done = await bringing.run()
    assert done.repository is not None
    assert done.repository.repository_id == "shop"
    assert history.progress.objects == 0
    assert await shown(service) == record.seen


async def test_who_may_not_restore_learns_it_before_an_object_is_copied(
    service: Service, record: Recorded, tmp_path: Path
) -> None:
    reader = await service.as_user("ron", "Developer")
    async with opened(replace(service, admin=reader), record, tmp_path / "work") as (bringing, *_):
        with pytest.raises(TarnError) as caught:
            await bringing.run()
    assert caught.value.kind is Kind.DENIED
    assert not await service.replicas.blocks.list_page(NAMESPACE, "data/", "", 10)


async def test_a_name_that_is_taken_is_refused_before_an_object_is_copied(
    service: Service, record: Recorded, tmp_path: Path
) -> None:
    async with opened(service, record, tmp_path / "work", name="lake") as (bringing, *_):
        with pytest.raises(TarnError) as caught:
            await bringing.run()
    assert caught.value.reason is Reason.REPOSITORY_EXISTS
    assert not await service.replicas.blocks.list_page(NAMESPACE, "data/", "", 10)


async def test_a_namespace_with_other_data_is_refused(
    service: Service, record: Recorded, tmp_path: Path
) -> None:
    lake = (await service.graveler.get_repository(service.admin, "lake")).storage_namespace
    before = await service.replicas.blocks.list_page(lake, "", "", 1000)
    async with opened(service, record, tmp_path / "work", namespace=lake) as (bringing, *_):
        with pytest.raises(TarnError, match="is not empty"):
            await bringing.run()
    assert await service.replicas.blocks.list_page(lake, "", "", 1000) == before


async def test_protected_branches_are_protected(
    service: Service, record: Recorded, tmp_path: Path
) -> None:
    settings = Settings(Rules(protections_of(["main", "rel-*"])))
    async with opened(service, record, tmp_path / "work", settings=settings) as (bringing, *_):
        await bringing.run()
    found = await service.graveler.get_settings(service.admin, "shop")
    assert [each.pattern for each in found.protections] == ["main", "rel-*"]
    with pytest.raises(TarnError, match="one pattern"):
        protections_of(["a[bc]"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda body: body[:-1] + b"!", "has the MD5"),
        (lambda body: body[:-1], "instead of"),
        (lambda body: body + b"!", "more than"),
        (lambda _: None, "is gone; lakeFS's garbage collection"),
    ],
)
async def test_an_object_that_is_not_what_lakefs_says_ends_the_import(
    service: Service,
    record: Recorded,
    tmp_path: Path,
    change: Callable[[bytes], bytes | None],
    why: str,
) -> None:
    files = sorted(each for each in (record.folder / "data").rglob("*") if each.is_file())
    victim = next(each for each in files if each.stat().st_size == 7)
    changed = change(victim.read_bytes())
    victim.unlink()
    if changed is not None:
        victim.write_bytes(changed)
    async with opened(service, record, tmp_path / "work") as (bringing, *_):
        with pytest.raises(TarnError, match=why) as caught:
            await bringing.run()
    assert caught.value.kind is Kind.CORRUPT
    assert await absent(service)


async def test_a_listing_that_came_over_wrong_is_found_before_users_see_it(
    service: Service, record: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(entry: PeerEntry, block: CopiedBlock) -> tuple[Entry, bool]:
        made, _ = entry_from(entry, block)
        return made if entry.size != 7 else replace_size(made), True

    def replace_size(made: Entry) -> Entry:
        return Entry(made.size + 1, made.mtime_us, made.address, made.md5)

    async with opened(service, record, tmp_path / "work") as (bringing, *_):
        with monkeypatch.context() as patched:
            patched.setattr(importing, "entry_from", forgetful)
            with pytest.raises(TarnError, match="other content in Tarn") as caught:
                await bringing.run()
    assert caught.value.kind is Kind.CORRUPT
    assert await absent(service)


async def test_one_folder_serves_one_import(
    service: Service, record: Recorded, tmp_path: Path
) -> None:
    async with opened(service, record, tmp_path / "work") as (_, history, state):
        with pytest.raises(TarnError, match="another process"):
            ImportState(tmp_path / "work", state.get("scope"))
        other = DumpIds(record.refs.commits, record.refs.tags, record.refs.tags)
        with pytest.raises(TarnError, match="another dump"):
            await history.load(other)
    with pytest.raises(TarnError, match="holds the import of"):
        ImportState(tmp_path / "work", "another scope")
    (tmp_path / "link").symlink_to(tmp_path / "work")
    with pytest.raises(TarnError, match="is a link"):
        ImportState(tmp_path / "link", "a scope")


async def test_a_dry_run_counts_what_an_import_copies(
    service: Service, record: Recorded, tmp_path: Path
) -> None:
    async with opened(service, record, tmp_path / "work") as (bringing, history, _):
        await history.count()
        counted = history.progress.objects, history.progress.size_bytes
        assert history.progress.commits_done == history.progress.commits == 8
        assert not await service.replicas.blocks.list_page(NAMESPACE, "", "", 10)
        history.progress.objects = history.progress.size_bytes = 0
        await bringing.run()
        assert (history.progress.objects, history.progress.size_bytes) == counted


async def test_a_recovery_finds_the_branches_that_came_over(
    service: Service, record: Recorded, tmp_path: Path
) -> None:
    async with opened(service, record, tmp_path / "work") as (bringing, *_):
        await bringing.run()
    await service.graveler.delete_repository(service.admin, "shop")
    transfer = Transfer(service.graveler, lambda: service.admin)
    done = await transfer.recover("shop", NAMESPACE, "main")
    assert (done.branches, done.commits, done.damaged) == (3, 8, [])
