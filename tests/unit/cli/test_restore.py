"""Restores and recoveries of a repository, as the command line does them, over graveler's real services."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from dumped_lake import commit, dump, fill, lines, opened, restore, shown, transfer
from graveler_service import Service, reason_of, running_service
from lake import Running, ended, reached
from tests.support.clock import RestlessClock

from tarn.client.graveler import GravelerClient
from tarn.core.commit import Commit, commit_id_of
from tarn.core.dump import NoteLine, from_line, to_line
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, CommitId, MetarangeId, RepositoryId
from tarn.fsck.check import check
from tarn.fsck.progress import CheckProgress
from tarn.fsck.session import FsckOptions
from tarn.fsck.state import open_state
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.mem import MemKv
from tarn.rpc.wire.call import Call
from tarn.snapshot.repository.transfer import Transfer
from tarn_graveler.records.claiming import PATIENCE_SECONDS


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(tmp_path) as made:
        yield made


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    made = Running()
    yield made
    await made.close()


async def test_a_restored_repository_shows_what_the_dumped_one_did(
    service: Service, tmp_path: Path
) -> None:
    await fill(service)
    before = await shown(service)
    long_ago = (await service.graveler.get_commit(service.admin, "lake", "main@{2}")).commit_id
    await dump(service, tmp_path / "lake")
    await service.graveler.delete_repository(service.admin, "lake")
    done = await restore(service, tmp_path / "lake")
    assert (done.branches, done.tags, done.left_out) == (2, 1, 0)
    assert await shown(service) == before
    assert await service.size("main", "b") == 2
    again = (await service.graveler.get_commit(service.admin, "lake", "main@{3}")).commit_id
    assert again == long_ago, "the restore itself is one more change"


async def test_a_restored_branch_has_no_compacted_changes(service: Service, tmp_path: Path) -> None:
    """Uncommitted changes are in no dump, whether they are staged or folded; the restored branch can be used."""
    await fill(service)
    before = await shown(service)
    await service.put("folded", 6)
    graveler, admin = service.graveler, service.admin
    assert (await graveler.compact_branch(admin, "lake", "main")).compacted_metarange_id
    await service.put("staged", 7)
    assert await shown(service) == before
    await dump(service, tmp_path / "lake")
    await graveler.delete_repository(admin, "lake")
    await restore(service, tmp_path / "lake")
    assert await shown(service) == before
    found = await graveler.staging_statistics(admin, "lake", "main")
    assert (found.row_count, found.compacted_metarange_id) == (0, "")
    assert list((await graveler.list_entries(admin, "lake", "main")).paths) == before["paths"]
    await commit(service, "main", "later", 8)
    paths = (await graveler.list_entries(admin, "lake", "main")).paths
    assert list(paths) == sorted([*before["paths"], "later"])


class InterruptedRestoreError(Exception):
    """The restore ends here."""


async def restored_until(service: Service, path: Path, calls: int) -> None:
    """Restores a dump, but the process dies after some calls."""
    left = calls

    def call() -> Call:
        nonlocal left
        if not left:
            raise InterruptedRestoreError
        left -= 1
        return service.admin

    await Transfer(service.graveler, call).restore("lake", await opened(service, path))


async def test_an_interrupted_restore_is_invisible_and_is_finished_by_repeating_it(
    service: Service, tmp_path: Path
) -> None:
    await fill(service)
    before = await shown(service)
    await dump(service, tmp_path / "lake")
    await service.graveler.delete_repository(service.admin, "lake")
    graveler, admin = service.graveler, service.admin
    for calls in range(1, 20):
        try:
            await restored_until(service, tmp_path / "lake", calls)
        except InterruptedRestoreError:
            work: Awaitable[object] = graveler.create_branch(admin, "lake", "x", "main")
            assert await reason_of(work) is Reason.REPOSITORY_NOT_FOUND
            assert not (await graveler.list_repositories(admin)).repositories
            work = graveler.create_repository(admin, "lake")
            assert await reason_of(work) is Reason.REPOSITORY_EXISTS
        else:
            break
    assert calls == 8, "begin, settings, commits, expiries, reflogs, branches, tags, finish"
    assert await shown(service) == before
    await restore_fails(service, tmp_path / "lake", Reason.REPOSITORY_EXISTS)


class _Losing:
    """A client that loses the answer to the first call of each method of a restore."""

    def __init__(self, graveler: GravelerClient) -> None:
        self._graveler = graveler
        self.lost: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **more: Any) -> Any:
            answer = await getattr(self._graveler, name)(*args, **more)
            if name not in self.lost:
                self.lost.add(name)
                raise TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, "no answer")
            return answer

        return call


async def test_a_restore_goes_on_after_lost_answers(service: Service, tmp_path: Path) -> None:
    await fill(service)
    before = await shown(service)
    await dump(service, tmp_path / "lake")
    await service.graveler.delete_repository(service.admin, "lake")
    losing, pauses = _Losing(service.graveler), list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    restoring = Transfer(cast("GravelerClient", losing), lambda: service.admin, sleep=sleep)
    await restoring.restore("lake", await opened(service, tmp_path / "lake"))
    assert losing.lost == {"begin_restore", "restore_records", "finish_restore"}
    assert pauses == [1.0, 1.0, 1.0]
    assert await shown(service) == before


async def restore_fails(service: Service, path: Path, reason: Reason, name: str = "lake") -> None:
    assert await reason_of(restore(service, path, name)) is reason


async def test_what_another_repository_has_is_not_restored_over(
    service: Service, tmp_path: Path
) -> None:
    await fill(service)
    await dump(service, tmp_path / "first")
    await restore_fails(service, tmp_path / "first", Reason.REPOSITORY_EXISTS)
    await restore_fails(service, tmp_path / "first", Reason.REPOSITORY_EXISTS, "other")
    await commit(service, "main", "z", 9)
    await dump(service, tmp_path / "second")
    await service.graveler.delete_repository(service.admin, "lake")
    with pytest.raises(InterruptedRestoreError):
        await restored_until(service, tmp_path / "first", 3)
    await restore_fails(service, tmp_path / "second", Reason.REPOSITORY_EXISTS)
    await restore_fails(service, tmp_path / "first", Reason.REPOSITORY_EXISTS, "other")
    await service.graveler.delete_repository(service.admin, "lake")
    await restore(service, tmp_path / "second", "other")
    assert (await service.graveler.lookup(service.admin, "other", "main", "z")).entry


async def test_only_a_restore_takes_the_namespace_of_a_deleted_repository(
    service: Service, tmp_path: Path
) -> None:
    """Also after a restore that was given up, and after one that failed before it was visible."""
    graveler, admin = service.graveler, service.admin
    namespace = (await graveler.get_repository(admin, "lake")).storage_namespace
    await fill(service)
    await dump(service, tmp_path / "lake")

    async def refused() -> None:
        work = graveler.create_repository(admin, "thief", storage_namespace=namespace)
        assert await reason_of(work) is Reason.REPOSITORY_EXISTS

    await graveler.delete_repository(admin, "lake")
    await refused()
    with pytest.raises(InterruptedRestoreError):
        await restored_until(service, tmp_path / "lake", 2)
    await refused()
    await graveler.delete_repository(admin, "lake")
    await refused()
    await restore(service, tmp_path / "lake")
    await refused()
    await graveler.delete_repository(admin, "lake")
    await restore(service, tmp_path / "lake", "again")


async def test_a_restore_that_dies_before_it_begins_leaves_the_namespace_to_restores(
    service: Service, running: Running, tmp_path: Path
) -> None:
    graveler, admin = service.graveler, service.admin
    namespace = (await graveler.get_repository(admin, "lake")).storage_namespace
    await dump(service, tmp_path / "lake")
    await graveler.delete_repository(admin, "lake")
    gate = service.replicas.kv.hold("set_if", InstallationKeys.namespace(namespace), after=True)
    async with service.replicas.replica() as dying:
        begun = dying.restoring.begin(RepositoryId("lake"), namespace, BranchId("main"), "1")
        task = running.start(begun)
        await reached(gate)
        task.cancel()
        await ended(task)

    async def later(work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """The work, after it has waited for the dead creation."""
        task = running.start(work)
        for _ in range(100):
            if task.done():
                break
            service.clock.advance(PATIENCE_SECONDS / 4)
            await asyncio.sleep(0.01)
        return task

    thief = graveler.create_repository(admin, "thief", storage_namespace=namespace)
    assert await reason_of(await later(thief)) is Reason.REPOSITORY_EXISTS
    await (await later(restore(service, tmp_path / "lake", "other")))


async def bare(service: Service, path: Path, calls: int) -> tuple[str, str]:
    """Leaves a restore unfinished; returns its id, and the instance of the bare repository."""
    with pytest.raises(InterruptedRestoreError):
        await restored_until(service, path, calls)
    manifest = (await opened(service, path)).manifest
    (dumped,), digest = manifest.repositories, manifest.sha256
    found = await service.graveler.begin_restore(
        service.admin,
        "lake",
        dumped.storage_namespace,
        default_branch_id=dumped.default_branch_id,
        restore_id=digest,
    )
    return digest, found.instance_uid


async def test_a_late_call_of_a_restore_changes_nothing_that_users_see(
    service: Service, running: Running, tmp_path: Path
) -> None:
    """A call that was sent before the end creates a branch that a user has deleted meanwhile."""
    graveler, admin = service.graveler, service.admin
    await fill(service)
    await dump(service, tmp_path / "lake")
    await graveler.delete_repository(admin, "lake")
    restore_id, uid = await bare(service, tmp_path / "lake", 4)
    branches = await lines(service, tmp_path / "lake", "branch")
    dev = next(line for line in branches if '"dev"' in line)
    gate = service.replicas.kv.hold("get_many", RepositoryKeys.branch("dev"))
    late = running.start(graveler.restore_records(admin, "lake", restore_id, [dev]))
    await reached(gate)
    await restore(service, tmp_path / "lake")
    await graveler.delete_branch(admin, "lake", "dev")
    gate.open()
    assert await reason_of(late) is Reason.REPOSITORY_NOT_FOUND
    assert await reason_of(graveler.get_branch(admin, "lake", "dev")) is Reason.BRANCH_NOT_FOUND
    with pytest.raises(TarnError, match="it is complete, and in use") as refused:
        await graveler.restore_records(admin, "lake", restore_id, [dev])
    assert refused.value.reason is Reason.REPOSITORY_EXISTS
    assert refused.value.metadata["repository"] == "lake"
    await graveler.finish_restore(admin, "lake", restore_id, uid)


async def test_records_that_do_not_fit_are_refused(service: Service, tmp_path: Path) -> None:
    graveler, admin = service.graveler, service.admin
    await fill(service)
    await dump(service, tmp_path / "lake")
    await graveler.delete_repository(admin, "lake")
    restore_id, uid = await bare(service, tmp_path / "lake", 1)
    path = tmp_path / "lake"
    commits = await lines(service, path, "commit")
    commits.sort(key=lambda line: int(json.loads(line)["generation"]))
    main = next(line for line in await lines(service, path, "branch") if '"main"' in line)
    (tag,) = await lines(service, path, "tag")
    (settings,) = await lines(service, path, "settings")

    async def refused(line: str, reason: Reason, *more: str) -> None:
        work = graveler.restore_records(admin, "lake", restore_id, [line, *more])
        assert await reason_of(work) is reason

    first = from_line(commits[0])
    assert isinstance(first, Commit)
    await refused(commits[1], Reason.COMMIT_NOT_FOUND)
    await refused(commits[1], Reason.COMMIT_NOT_FOUND, commits[0])
    await refused(to_line(replace(first, generation=1)), Reason.INVALID_ARGUMENT)
    await refused(main, Reason.COMMIT_NOT_FOUND)
    elsewhere = replace(first, metarange_id=MetarangeId("ef" * 32))
    fields = {"commit_id": commit_id_of(elsewhere)}
    lost = json.dumps({**json.loads(main), **fields})
    await refused(lost, Reason.COMMIT_NOT_FOUND, to_line(elsewhere))
    await refused(
        to_line(NoteLine(BranchId("main"), CommitId("ab" * 32), 1)), Reason.INVALID_ARGUMENT
    )
    await refused(main, Reason.INVALID_ARGUMENT, *[main] * 500)
    work = graveler.finish_restore(admin, "lake", restore_id, uid)
    assert await reason_of(work) is Reason.BRANCH_NOT_FOUND
    with pytest.raises(InterruptedRestoreError):
        await restored_until(service, tmp_path / "lake", 7)
    other = {"commit_id": json.loads(commits[0])["commit_id"]}
    await refused(json.dumps({**json.loads(main), **other}), Reason.BRANCH_EXISTS)
    await refused(json.dumps({**json.loads(tag), **other}), Reason.TAG_EXISTS)
    await refused(json.dumps({**json.loads(settings), "hidden": []}), Reason.SETTINGS_CHANGED)
    work = graveler.finish_restore(admin, "lake", restore_id, "another")
    assert await reason_of(work) is Reason.REPOSITORY_NOT_FOUND
    await restore(service, tmp_path / "lake")


async def test_only_the_restore_that_began_continues(service: Service, tmp_path: Path) -> None:
    graveler, admin = service.graveler, service.admin
    await dump(service, tmp_path / "lake")
    await graveler.delete_repository(admin, "lake")
    restore_id, uid = await bare(service, tmp_path / "lake", 1)
    (dumped,) = (await opened(service, tmp_path / "lake")).manifest.repositories
    namespace = dumped.storage_namespace
    commits = await lines(service, tmp_path / "lake", "commit")
    for place, branch, which in (
        ("local://other", "main", restore_id),
        (namespace, "dev", restore_id),
        (namespace, "main", "another"),
    ):
        work: Awaitable[object] = graveler.begin_restore(
            admin, "lake", place, default_branch_id=branch, restore_id=which
        )
        assert await reason_of(work) is Reason.REPOSITORY_EXISTS
    for work in (
        graveler.restore_records(admin, "lake", "another", commits),
        graveler.restore_records(admin, "lake", "", commits),
        graveler.read_namespace(admin, "lake", "another"),
    ):
        assert await reason_of(work) is Reason.REPOSITORY_EXISTS
    await restore(service, tmp_path / "lake")
    work = graveler.read_namespace(admin, "lake", restore_id)
    assert await reason_of(work) is Reason.REPOSITORY_EXISTS
    assert (await graveler.get_repository(admin, "lake")).instance_uid == uid


async def test_a_check_finds_nothing_wrong_in_a_restored_repository(
    service: Service, tmp_path: Path
) -> None:
    await fill(service)
    await dump(service, tmp_path / "lake")
    await service.graveler.delete_repository(service.admin, "lake")

    async def found() -> set[str]:
        clock = RestlessClock(service.clock.now_us() + 2 * 86_400_000_000)
        options, state = FsckOptions(), tmp_path / "fsck.state"
        state.unlink(missing_ok=True)
        opened = open_state(state, options.scope(), clock.now_us())
        kv = service.replicas.kv._kv
        assert isinstance(kv, MemKv)
        await check(
            installation_id="test",
            kv=kv,
            blocks=service.replicas.blocks,
            state=opened,
            options=options,
            clock=clock,
            progress=CheckProgress(),
        )
        codes = {each.code.label for each in opened.findings()}
        opened.close()
        return codes

    with pytest.raises(InterruptedRestoreError):
        await restored_until(service, tmp_path / "lake", 7)
    assert await found() == set()
    await restore(service, tmp_path / "lake")
    # The test stages entries without blocks.
    assert await found() <= {"block-missing", "entry-invalid"}


async def test_a_namespace_without_commits_is_refused(service: Service, tmp_path: Path) -> None:
    await dump(service, tmp_path / "lake")
    found = await opened(service, tmp_path / "lake")
    work = transfer(service).restore("other", found, "local://typo")
    assert await reason_of(work) is Reason.INVALID_ARGUMENT


async def test_who_may_not_attach_a_namespace_may_not_restore(
    service: Service, tmp_path: Path
) -> None:
    await dump(service, tmp_path / "lake")
    dev = await service.as_user("dee", "Developer")
    graveler = service.graveler
    await graveler.read_dump(dev, "lake")
    for work in (
        graveler.begin_restore(dev, "x-1", "local://x", default_branch_id="main", restore_id="1"),
        graveler.restore_records(dev, "lake", "1", []),
        graveler.finish_restore(dev, "lake", "1", "1"),
        graveler.read_dump(service.anonymous, "lake"),
    ):
        with pytest.raises(TarnError) as raised:
            await work
        assert raised.value.kind in (Kind.DENIED, Kind.UNAUTHENTICATED)
