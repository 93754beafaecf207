"""The compactor beside a running Tarn: on every form and store, when processes die, and from the command line."""

import asyncio
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from running_compactor import (
    Admin,
    admin_of,
    another_compactor,
    delete,
    eventually,
    listed,
    staging,
    status,
)
from running_tarn import Done, RunningTarn

TASKS = 10_000
AT_ONCE = 1000


def paths(count: int, folder: str = "_temporary/0") -> list[str]:
    return [f"{folder}/task-{number:05}/part-{number:05}" for number in range(count)]


def keys(names: list[str]) -> list[str]:
    return [f"main/{name}" for name in names]


@pytest.mark.in_form
@pytest.mark.on_cassandra("one")
@pytest.mark.timeout(600)
def test_many_deletes_without_a_commit_are_compacted_by_themselves(
    tarn: RunningTarn, repository: str, s3: Any
) -> None:
    names = paths(2000)
    before = status(tarn)

    async def run() -> None:
        async with admin_of(tarn) as admin:
            await admin.stage(repository, names)

    asyncio.run(run())
    tarn.ok("commit", f"{repository}/main", "-m", "temporary files")
    s3.put_object(Bucket=repository, Key="main/result", Body=b"kept")
    delete(s3, repository, names)
    eventually(lambda: staging(tarn, repository)["tombstones"] < 10, tarn)
    assert listed(s3, repository) == ["main/result"]
    assert s3.get_object(Bucket=repository, Key="main/result")["Body"].read() == b"kept"
    found = status(tarn)
    assert found["compactions"] > before["compactions"]
    assert found["tombstones_removed"] - before["tombstones_removed"] >= len(names) * 0.9
    assert all("connected" in each for each in found["replicas"])
    changes = tarn.ok("--json", "commit", f"{repository}/main", "-m", "result").json
    assert (changes["added"], changes["removed"]) == (1, len(names))
    assert listed(s3, repository) == ["main/result"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_job_of_ten_thousand_tasks_leaves_the_branch_as_it_found_it(
    tarn: RunningTarn, repository: str, s3: Any
) -> None:
    """Each task writes a temporary file and renames it twice, as S3A does for the classic committer: the copy is
    written, then the original is deleted. Nothing is committed."""
    attempts, done = paths(TASKS, "_temporary/0/_temporary"), paths(TASKS, "_temporary/0")
    results = [f"table/part-{number:05}" for number in range(TASKS)]
    kept = [f"other/{number:03}" for number in range(100)]

    async def run() -> None:
        async with admin_of(tarn) as admin:
            await admin.stage(repository, kept)
            clean = await admin.listing_cost(s3, repository)
            for start in range(0, TASKS, AT_ONCE):
                some = slice(start, start + AT_ONCE)
                await admin.stage(repository, attempts[some])
                await admin.stage(repository, done[some])
                delete(s3, repository, attempts[some])
            for start in range(0, TASKS, AT_ONCE):
                some = slice(start, start + AT_ONCE)
                await admin.stage(repository, results[some])
                delete(s3, repository, done[some])
            eventually(lambda: staging(tarn, repository)["tombstones"] < 10, tarn)
            before_delete = await admin.listing_cost(s3, repository)
            # As after a job whose result is thrown away: the branch costs what it did before.
            delete(s3, repository, results)
            eventually(lambda: staging(tarn, repository)["tombstones"] < 10, tarn)
            check_costs(clean, before_delete, await admin.listing_cost(s3, repository))

    asyncio.run(run())
    assert listed(s3, repository) == [*keys(kept), "main/zz-touched"]
    made = tarn.ok("--json", "commit", f"{repository}/main", "-m", "nothing is left of it").json
    assert (made["added"], made["changed"], made["removed"]) == (len(kept) + 1, 0, 0)


def check_costs(clean: tuple[int, int], full: tuple[int, int], after: tuple[int, int]) -> None:
    """Rows read and objects returned by a listing before the job, with its result, and without it."""
    assert (clean[1], full[1], after[1]) == (101, 101 + TASKS, 101)
    # A page reads one row more than it returns, in each layer; a few tombstones may be younger than the compaction.
    assert full[0] <= full[1] * 1.1 + 100, (clean, full, after)
    assert after[0] <= clean[0] + 50, (clean, full, after)


async def fill_and_delete(admin: Admin, s3: Any, repository: str, names: list[str]) -> None:
    """Leaves as many tombstones, more than a replica folds without its heavy process."""
    await admin.stage(repository, names)
    delete(s3, repository, names)


def kill(tarn: RunningTarn, *prefixes: str) -> None:
    """Kills processes by the beginning of their names; returns when they run again."""
    before = tarn.state()["processes"]
    victims = [name for name in before if name.startswith(prefixes)]
    assert victims
    for name in victims:
        os.kill(before[name], signal.SIGKILL)

    def are_new() -> bool:
        now = tarn.state()["processes"]
        return all(now[name] not in {0, before[name]} for name in victims)

    eventually(are_new, tarn)


async def kills_replicas(tarn: RunningTarn, s3: Any, repository: str, names: list[str]) -> bool:
    """Kills the replicas while one of them compacts the branch; False if it was faster.

    What is left is the mark in the branch record.
    """
    async with admin_of(tarn) as admin:
        await admin.compactor.pause(admin.call(), 3600)
        await fill_and_delete(admin, s3, repository, names)
        graveler, call = admin.client.graveler, admin.client.call()
        work = asyncio.ensure_future(graveler.compact_branch(call, repository, "main"))
        if await admin.until_compacting(repository):
            await asyncio.to_thread(kill, tarn, "worker", "graveler")
        await asyncio.wait([work])
        if work.exception() is None:
            return False
    return "compaction_start" in staging(tarn, repository)


async def kills_compactor(tarn: RunningTarn, s3: Any, repository: str, names: list[str]) -> bool:
    """Kills the compactor while a compaction runs that it has asked for; False if it was faster."""
    async with admin_of(tarn) as admin:
        await admin.compactor.pause(admin.call(), 3600)
        await fill_and_delete(admin, s3, repository, names)
        await admin.compactor.resume(admin.call())
        is_running = await admin.until_compacting(repository)
        await asyncio.to_thread(kill, tarn, "compactor")
        return is_running


@pytest.mark.in_form("separate")
@pytest.mark.timeout(600)
def test_killed_replicas_and_a_killed_compactor_lose_nothing(own_tarn: RunningTarn) -> None:
    tarn, s3 = own_tarn, own_tarn.s3()
    repository = tarn.new_repository()
    names, kept = paths(1500), [f"kept/{number}" for number in range(50)]

    async def prepare() -> None:
        async with admin_of(tarn) as admin:
            await admin.stage(repository, [*names, *kept])

    asyncio.run(prepare())
    tarn.ok("commit", f"{repository}/main", "-m", "temporary files")
    attempts = (asyncio.run(kills_replicas(tarn, s3, repository, names)) for _ in range(5))
    assert any(attempts), "each compaction was faster than its killer"
    assert listed(s3, repository) == keys(sorted(kept))
    told = tarn.ok("--json", "compact", f"{repository}/main").json
    assert told["outcome"] == "running", "the mark of the dead process"
    assert "running_since" in told
    assert tarn.ok("--json", "compact", f"{repository}/main", "--force").json["outcome"] == (
        "compacted"
    )
    assert staging(tarn, repository)["tombstones"] == 0

    attempts = (asyncio.run(kills_compactor(tarn, s3, repository, names)) for _ in range(5))
    assert any(attempts), "each compaction was faster than its killer"
    eventually(lambda: staging(tarn, repository)["tombstones"] < 10, tarn)
    # The new compactor knows the branch by its listing of staged branches, and the replicas by their events.
    delete(s3, repository, kept[:30])
    eventually(lambda: staging(tarn, repository)["tombstones"] < 10, tarn)
    assert status(tarn)["compactions"] >= 1
    kill(tarn, "worker", "graveler")
    eventually(lambda: sum("1 gaps" in each for each in status(tarn)["replicas"]) > 0, tarn)
    delete(s3, repository, kept[30:45])
    eventually(lambda: staging(tarn, repository)["tombstones"] < 10, tarn)
    assert listed(s3, repository) == keys(sorted(kept[45:]))
    tarn.ok("commit", f"{repository}/main", "-m", "after all of it")
    assert listed(s3, repository) == keys(sorted(kept[45:]))
    s3.close()


def is_clean(tarn: RunningTarn, repository: str, branch: str) -> bool:
    """Returns whether a branch has no staged rows."""
    return bool(staging(tarn, repository, branch)["staged_rows"] == 0)


@pytest.mark.in_form("separate")
@pytest.mark.timeout(300)
def test_two_compactors_share_the_branches(own_tarn: RunningTarn, tmp_path: Path) -> None:
    # Of its own: branches that other tests left uncommitted are compacted as well.
    tarn, s3 = own_tarn, own_tarn.s3()
    repository = tarn.new_repository()
    branches = [f"b{number}" for number in range(6)]
    names = [f"tmp/{number}" for number in range(20)]
    for name in names:
        s3.put_object(Bucket=repository, Key=f"main/{name}", Body=b"x")
    tarn.ok("commit", f"{repository}/main", "-m", "files")
    for branch in branches:
        tarn.ok("branch", "create", f"{repository}/{branch}", "--from", "main")
    with another_compactor(tarn, tmp_path) as other:
        servers = (tarn.state()["compactor_server"], other)

        # One of them is asked to pause, and the other one to go on.
        tarn.ok("--compactor-server", servers[0], "compact", "pause")
        before = [status(tarn, server) for server in servers]
        assert before[0]["paused_by"] == before[1]["paused_by"]
        assert before[0]["paused_since"] == before[1]["paused_since"]
        for branch in branches:
            delete(s3, repository, names, branch)
        assert not any(is_clean(tarn, repository, branch) for branch in branches)
        tarn.ok("--compactor-server", servers[1], "compact", "resume")
        for branch in branches:
            eventually(partial(is_clean, tarn, repository, branch), tarn)
        after = [status(tarn, server) for server in servers]
    more = {
        name: sum(new[name] - old[name] for new, old in zip(after, before, strict=True))
        for name in ("compactions", "tombstones_removed", "failures")
    }
    assert more == {
        "compactions": len(branches),
        "tombstones_removed": len(branches) * len(names),
        "failures": 0,
    }, "each branch is compacted once"
    for branch in branches:
        assert listed(s3, repository, branch=branch) == []
    s3.close()


@pytest.fixture
def paused(tarn: RunningTarn) -> Any:
    """Only the test compacts."""
    tarn.ok("compact", "pause", "--minutes", "30")
    yield
    tarn.ok("compact", "resume")


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("paused")
def test_a_branch_is_compacted_from_the_command_line(
    tarn: RunningTarn, repository: str, s3: Any
) -> None:
    main = f"{repository}/main"
    for name in ("a", "b"):
        s3.put_object(Bucket=repository, Key=f"main/{name}", Body=b"1")
    tarn.ok("commit", main, "-m", "two")
    s3.put_object(Bucket=repository, Key="main/c", Body=b"1")
    s3.delete_object(Bucket=repository, Key="main/a")
    counted = staging(tarn, repository)
    wanted = {"staged_rows": 2, "tombstones": 1, "sealed_tokens": 0, "compacted_rows": 0}
    assert {name: counted[name] for name in wanted} == wanted
    assert counted["complete"] is True
    changes = tarn.ok("diff", main).out
    done = tarn.ok("--json", "compact", main).json
    assert (done["outcome"], done["rows_read"], done["tombstones_removed"]) == ("compacted", 2, 1)
    assert "nothing to do" in tarn.ok("compact", main).out
    shown = tarn.ok("branch", "show", main, "--staging").out
    assert "compacted_rows" in shown.replace(" ", "_")
    assert staging(tarn, repository)["compacted_rows"] == 2
    assert tarn.ok("diff", main).out == changes
    # Rules block changes of content; a compaction changes none.
    s3.delete_object(Bucket=repository, Key="main/b")
    tarn.ok("repo", "protect", repository, "main")
    tarn.ok("repo", "read-only", repository)
    assert tarn.ok("--json", "compact", main).json["tombstones_removed"] == 1
    assert tarn.cli("commit", main, "-m", "blocked").code == 4
    tarn.ok("repo", "read-only", repository, "--off")
    tarn.ok("repo", "unprotect", repository, "main")
    made = tarn.ok("--json", "commit", main, "-m", "as if nothing had been").json
    assert (made["added"], made["removed"]) == (1, 2)
    assert listed(s3, repository) == ["main/c"]


def refused(tarn: RunningTarn, code: int, *command: str) -> str:
    done: Done = tarn.cli(*command)
    assert done.code == code, (command, done)
    return done.err


@pytest.mark.in_form("separate")
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("paused")
def test_the_status_of_a_compactor_and_refusals(
    tarn: RunningTarn, repository: str, s3: Any, tmp_path: Path
) -> None:
    s3.put_object(Bucket=repository, Key="main/a", Body=b"1")

    def knows_it() -> bool:
        rows = {each["branch"]: each["rows"] for each in status(tarn)["branches"]}
        return rows.get(f"{repository}/main") == 1

    eventually(knows_it, tarn)
    text = tarn.ok("compact", "status", "-n", "1000").out
    assert f"{repository}/main" in text
    assert "paused_until" in text
    assert "paused_by" in text
    assert "work again" in tarn.ok("compact", "resume").err
    assert "paused_until" not in status(tarn)
    assert "branch never" in refused(tarn, 3, "compact", f"{repository}/never")
    refused(tarn, 2, "compact", "pause", "--minutes", "0")
    refused(tarn, 2, "compact")
    said = refused(tarn, 6, "--compactor-server", "127.0.0.1:1", "compact", "status")
    assert "127.0.0.1:1" in said
    name = f"dev-{repository}"
    tarn.ok("auth", "user", "create", name, "--role", "Developer")
    key = tarn.ok("--json", "auth", "credential", "create", "--user", name).json
    settings = tmp_path / "credentials"
    settings.write_text(
        tarn.settings.read_text()
        .replace(tarn.access_key_id, key["access_key_id"])
        .replace(tarn.secret_access_key, key["secret_access_key"])
    )
    developer = RunningTarn(tarn.form, tarn.data, settings, tarn.supervisor)
    assert "ManageCompaction" in refused(developer, 4, "compact", "status")
    assert developer.ok("--json", "compact", f"{repository}/main").json["rows_read"] == 1
