"""Plays one seed: sets up an installation, runs clients on it, and checks their answers."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from structlog.testing import capture_logs
from tests.sim.admins import Admin, Namesakes
from tests.sim.collecting import Collecting
from tests.sim.collectors import collect_twice
from tests.sim.compactors import Compactor
from tests.sim.deleting import Deleter
from tests.sim.equals import as_told, noted_discards, wrong_addresses
from tests.sim.erasers import erase_all
from tests.sim.expiring import Expiring, set_rules
from tests.sim.least import ACKNOWLEDGED, acknowledged, collected_too_little, shortfalls
from tests.sim.linking import Linker
from tests.sim.plan import Plan, planned
from tests.sim.reflogs import check_reflog
from tests.sim.sessioning import SessionHolder, check_sessions, session_parties
from tests.sim.sessions import CACHE_SECONDS, GRANT_SECONDS, REFUSAL_SECONDS
from tests.sim.versioning import REPOSITORY
from tests.sim.viewing import ViewAdmin, ViewUser
from tests.sim.workload import Client
from tests.sim.world import SALT, Replica, World
from tests.support.check.checker import Report, Violation, check
from tests.support.check.history import ABSENT, GONE, Commit, History, shown
from tests.support.faults.modes import Mode
from tests.support.sim.loop import SimLoop, SimStuckError, simulate

import tarn.aio.deadlines
import tarn.collection.canary
import tarn.collection.deleting
import tarn.collection.graveler_run
import tarn.collection.marking
import tarn.collection.references
import tarn.collection.spill
import tarn.collection.sweeping
import tarn.core.access.session_policy
import tarn.core.expiry_plan
import tarn.gate.answers
import tarn.kv.auth_records
import tarn.kv.keys
import tarn.rpc.server.inflight
import tarn_auth.authorizer
import tarn_auth.session_keys
import tarn_gateway.operations.completing
import tarn_graveler.compaction.compacting
import tarn_graveler.guards.fences
import tarn_graveler.handlers.collections
import tarn_graveler.records.branches
import tarn_graveler.records.reflog_rows
import tarn_graveler.uploads.daily_partitions
import tarn_graveler.uploads.state
from tarn.core.collection import BATCH_IDS_MAX
from tarn.core.commit import Commit as CommitContent
from tarn.core.commit import commit_id_of
from tarn.core.errors import TarnError
from tarn.core.ids import BranchId, CommitId
from tarn.kv.records import Repository
from tarn_graveler.assembly import Graveler
from tarn_graveler.records.branches import BranchName
from tarn_graveler.records.commits import Commits
from tarn_graveler.records.erased_lookups import ErasureLookups, ScannedErasures

__all__ = ["Run", "judged", "play", "play_clients", "run_plan", "run_seed", "scaled", "simulated"]

_DAY_SECONDS = 5
_OVERRUN_SECONDS = 2.0
_SWEEP_SECONDS = 0.25
_COMPACTORS = 2
_LINKERS = 2
_PARTITIONS = 1
_PARTITIONED = (
    tarn.collection.canary,
    tarn.collection.marking,
    tarn.collection.references,
    tarn.collection.spill,
    tarn.collection.sweeping,
)
"""Who knows the number of files of a join. A run has some hundred blocks, and joins them often."""
_COMPACTION_EXPIRES_US = 500_000


@dataclass(frozen=True)
class Run:
    """The result of a seed."""

    plan: Plan
    history: History
    report: Report

    @property
    def shortfalls(self) -> list[str]:
        """The kinds of operations that were acknowledged too rarely, and collections that deleted nothing."""
        told = shortfalls(acknowledged(self.history), [self.plan])
        return [*told, *collected_too_little(self.report.statistics, [self.plan])]

    @property
    def violations(self) -> list[Violation]:
        return self.report.violations


def run_seed(
    seed: int,
    *,
    mode: Mode = Mode.DRAWN,
    is_traced: bool = False,
    salt: str = SALT,
) -> Run:
    """One run; the same seed and salt give the same history, line by line.

    Args:
        seed: draws the plan.
        mode: what plays beside the clients.
        is_traced: log each operation of the stores.
        salt: of the injected faults.
    """
    return run_plan(planned(seed, mode), is_traced=is_traced, salt=salt)


def run_plan(plan: Plan, *, is_traced: bool = False, salt: str = SALT) -> Run:
    """Plays a plan; see `run_seed`."""
    worlds: list[World] = []  # `main` returns nothing if the run gets stuck

    async def main(loop: SimLoop) -> None:
        world = World(loop, plan, is_traced=is_traced, salt=salt)
        worlds.append(world)
        await play(world)
        world.problems += loop.errors

    logs = simulated(plan, worlds, main)
    return judged(worlds[0], logs)


def simulated(
    plan: Plan, worlds: list[World], main: Callable[[SimLoop], Coroutine[Any, Any, None]]
) -> Sequence[MutableMapping[str, Any]]:
    """Plays worlds of a plan; returns what they log.

    Args:
        worlds: `main` adds each that it makes. The newest one gets what is noted of commits and erasures.
        main: plays them.
    """
    with scaled(plan), _built_commits(worlds), noted_discards(worlds), capture_logs() as logs:
        try:
            simulate(main, plan.seed)
        except SimStuckError as error:
            worlds[0].problem(f"stuck: {error}")
    return logs


def judged(world: World, logs: Sequence[MutableMapping[str, Any]]) -> Run:
    """Returns the run of a world that was played, with all that it breaks."""
    misused, admitted = world.views.judge(), world.sessions.judge()
    report = check(as_told(world))
    report.violations += [Violation("I12", text) for text in misused]
    report.violations += [Violation("I13", text) for text in admitted]
    report.violations += [Violation("I0", text) for text in world.problems]
    report.violations += [Violation("I9", text) for text in world.kept.violations()]
    report.violations += [Violation("I9", text) for text in world.erased.problems]
    report.violations += [Violation(each, text) for each, text in wrong_addresses(world)]
    report.violations += [Violation("I10", text) for text in world.reflog_problems]
    for entry in logs:
        if entry["log_level"] in {"error", "critical"}:
            report.violations.append(Violation("I0", str(entry)))
        report.statistics[f"log: {entry['event']}"] += 1
    report.statistics += world.statistics
    for outcome, count in world.online_outcomes.items():
        report.statistics[f"online: {outcome}"] += count
    for kind, count in acknowledged(world.history).items():
        report.statistics[f"{ACKNOWLEDGED}{kind}"] += count
    return Run(world.plan, world.history, report)


@contextlib.contextmanager
def scaled(plan: Plan) -> Iterator[None]:
    """Scales constants that are seconds and minutes in production to a run of half a minute."""
    claim_us = int(plan.claim_seconds * 1_000_000)
    instead: list[tuple[object, str, object]] = [
        (tarn_graveler.records.branches, "_CACHE_SECONDS", plan.cache_seconds),
        (tarn_graveler.compaction.compacting, "_EXPIRES_US", _COMPACTION_EXPIRES_US),
        (tarn_graveler.uploads.state, "_CLAIM_US", claim_us),
        (tarn_graveler.uploads.daily_partitions, "DAY_US", _DAY_SECONDS * 1_000_000),
        (tarn.kv.keys, "_DAY_MS", _DAY_SECONDS * 1_000),
        (tarn.rpc.server.inflight, "OVERRUN_SECONDS", _OVERRUN_SECONDS),
        (tarn.aio.deadlines, "RESOLUTION_SECONDS", _SWEEP_SECONDS),
        (tarn_gateway.operations.completing, "PART_BYTES_MIN", 1),
    ]
    if plan.collecting is not None:
        instead += _of_collections(plan.collecting)
    if plan.expiring is not None:
        instead += _of_expiry(plan.expiring)
    if plan.session_users:
        instead += _OF_SESSIONS
    if plan.erasing is None:
        # No address is erased. Without the read, these seeds give the histories that are recorded for the guards.
        instead += [(each, "any", _no_row) for each in (ErasureLookups, ScannedErasures)]
    with contextlib.ExitStack() as stack:
        for owner, name, value in instead:
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


async def _no_row(_: object) -> bool:
    return False


_OF_SESSIONS: list[tuple[object, str, object]] = [
    (tarn_auth.authorizer, "CACHE_TTL_S", CACHE_SECONDS),
    (tarn_auth.authorizer, "GRANT_TTL_MS", int(GRANT_SECONDS * 1000)),
    (tarn.gate.answers, "_REFUSAL_TTL_S", REFUSAL_SECONDS),
    (tarn.core.access.session_policy, "DURATION_S_MIN", 1),
    (tarn.kv.auth_records, "RENEWED_S_MAX", 12),
    (tarn_auth.session_keys, "_KEPT_US", 2_000_000),
    (tarn_auth.session_keys, "_SWEEP_SECONDS", 1.0),
]


def _of_collections(plan: Collecting) -> list[tuple[object, str, object]]:
    return [
        (tarn.collection.graveler_run, "_RENEW_SHARE", 0.25),
        (tarn.collection.deleting, "_SEND_S", plan.sending_seconds),
        (tarn.collection.deleting, "_METADATA_DELETE_S", plan.valid_seconds / 2),
        (tarn.collection.sweeping, "BATCH_IDS_MAX", min(plan.batch_blocks, BATCH_IDS_MAX)),
        *((module, "PARTITIONS", _PARTITIONS) for module in _PARTITIONED),
        (tarn_graveler.guards.fences, "_WAIT_SECONDS", plan.batch_seconds / 8),
        (tarn_graveler.handlers.collections, "_ROWS_DEFAULT", plan.page_rows),
    ]


def _of_expiry(plan: Expiring) -> list[tuple[object, str, object]]:
    day_us = int(plan.day_seconds * 1_000_000)
    return [
        (tarn.core.expiry_plan, "DAY_US", day_us),
        (tarn_graveler.records.reflog_rows, "DAY_US", day_us),
        (tarn_graveler.records.expired, "READ_CACHE_SECONDS", plan.read_cache_seconds),
    ]


@contextlib.contextmanager
def _built_commits(worlds: list[World]) -> Iterator[None]:
    """Records every commit that is built. After a hard move, the history of no branch may have it."""
    add = Commits.add

    def noted(self: Commits, repository: Repository, commit: CommitContent) -> Awaitable[CommitId]:
        if repository.repository_id == REPOSITORY:
            _home_of(self, worlds).built.add(commit_id_of(commit))
        if worlds[-1].plan.collecting is not None:
            place = (repository.storage_namespace, commit.metarange_id)
            worlds[-1].kept.built(commit_id_of(commit), *place)
        return add(self, repository, commit)

    with mock.patch.object(Commits, "add", noted):
        yield


def _home_of(commits: Commits, worlds: list[World]) -> World:
    """Returns the world whose replica builds a commit."""
    for world in worlds[:-1]:
        if any(each.is_up and each.graveler.commits is commits for each in world.replicas):
            return world
    return worlds[-1]


async def play(world: World) -> None:
    """Sets up, runs clients under faults, ends the faults, and reads everything."""
    plan = world.plan
    world.log(plan.line())
    for replica in world.replicas:
        replica.start()
    admin = Admin(world, "admin", [])
    await admin.create("lake/main")
    branches = ["lake/main"]
    admins: list[Client] = []
    if plan.has_side:
        await admin.create("lake/side")
        branches.append("lake/side")
    if plan.has_branch_turns:
        await admin.create("lake/dev")
        branches.append("lake/dev")
        admins.append(Admin(world, "admin-dev", ["lake/dev"]))
    if plan.has_repository_turns:
        await admin.create("tmp/main")
        branches.append("tmp/main")
        admins.append(Admin(world, "admin-tmp", ["tmp/main"]))
    if plan.has_namesakes:
        admins.append(Namesakes(world, "namesakes", []))
    if plan.compact_seconds:
        admins += [Compactor(world, f"compactor-{n}", branches) for n in range(_COMPACTORS)]
    if plan.view_seconds:
        view_admin = ViewAdmin(world, "view-admin", ["lake/main", "lake/side"])
        await view_admin.create()
        admins.append(view_admin)
    admins += await session_parties(world)
    if plan.link_seconds:
        linked = [branch for branch in branches if branch.startswith("lake/")]
        admins += [Linker(world, f"linker-{n}", linked) for n in range(_LINKERS)]
    if plan.expiring is not None:
        await set_rules(world.replicas[0], REPOSITORY, plan.expiring)
    repositories = sorted({branch.split("/")[0] for branch in branches})
    world.start_collectors(repositories)
    await play_clients(world, branches, admins)


async def play_clients(world: World, branches: list[str], admins: Sequence[Client]) -> None:
    """Runs clients on branches that are there, beside others, until both have ended; then reads everything."""
    plan = world.plan
    world.start_faults()
    clients = [Client(world, f"{world.life}c{n}", branches) for n in range(plan.clients)]
    clients += [Deleter(world, f"{world.life}d{n}", branches) for n in range(plan.deleters)]
    clients += [ViewUser(world, f"{world.life}v{n}") for n in range(plan.view_users)]
    clients += [SessionHolder(world, f"{world.life}h{n}") for n in range(plan.session_users)]
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(client.run()) for client in clients]
        others = [group.create_task(other.run()) for other in admins]
        await asyncio.wait(running)
        world.has_faults = False
        await asyncio.wait(others or running)
    await world.calm_down()
    await check_sessions(world, admins)
    if plan.erasing is not None:
        await erase_all(world)
    world.history.begin_quiet_end()
    await _look(world, branches)
    await world.tasks.close()


async def _look(world: World, branches: list[str]) -> None:
    """Reads everything at the quiet end: acknowledged writes must be there."""
    last = Replica(world, "last")
    last.start()
    world.replicas = [last]
    client = Client(world, "last", branches)
    client.patience_seconds = 60.0
    repositories = sorted({branch.split("/")[0] for branch in branches})
    for step in _steps(world):
        world.log(f"look: {step}")
        if step == "compacted":
            for branch in branches:
                await Compactor(world, "last compactor", branches).compact(branch)
        elif step == "committed":
            await _commit_all(world, client)
        elif step == "dropped":
            # Tokens are announced, checked against the record, and dropped.
            await asyncio.sleep(3 * world.plan.registered_seconds + 2)
        elif step == "collected":
            await collect_twice(world, repositories)
        for branch in branches:
            await _read_all(world, client, branch)
    if _is_collected(world):
        await world.kept.compare(last, "lake")
    graveler = last.graveler
    for branch in branches:
        await _collect(world, graveler, branch)
        await check_reflog(world, graveler, branch)
    _check_tags(world)
    if world.plan.keeps_events and not world.is_lost:
        await world.journaled.finish(last)
    last.crash()


async def _read_all(world: World, client: Client, branch: str) -> None:
    """Reads each key, all keys at once, and in some runs all of them page by page."""
    reads = [await client.get(branch, key) for key in client.keys]
    reads += await client.list_keys(branch, "", 1000)
    if world.plan.paged_rate:
        reads += await client.list_keys(branch, "", 2, is_whole=True)
    for op in reads:
        if not op.is_ok:
            world.problem(f"a read without injected faults failed: {op.line()}")


def _is_collected(world: World) -> bool:
    """Whether all garbage is gone at the end. Of a store that is lost, nothing is deleted any more."""
    return world.plan.collecting is not None and not world.is_lost


def _steps(world: World) -> list[str]:
    """Returns what happens before each look at the quiet end."""
    collected = ["collected"] if _is_collected(world) else []
    compacted = ["compacted"] if world.plan.compact_seconds else []
    return ["uncommitted", *collected, *compacted, "committed", "dropped", *collected]


async def _commit_all(world: World, client: Client) -> None:
    for branch in client.branches:
        read = await client.get(branch, client.keys[0])
        if read.value != GONE:
            op = await client.commit(branch)
            if not op.is_ok:
                world.problem(f"a commit without injected faults failed: {op.line()}")


def _check_tags(world: World) -> None:
    """Checks that reads through tags returned the contents of their commits, and through removed tags nothing."""
    for name, commit_id, key, value in world.commit_reads:
        commit = world.history.commits.get(commit_id)
        if commit is None:
            what = f"commit {commit_id}, which cannot be read" if commit_id else "no commit"
            world.problem(f"{shown(value)} was read at {key} through tag {name} of {what}")
        elif value != commit.contents.get(key, ABSENT):
            text = f"{shown(value)} was read at {key} through tag {name} of commit {commit_id}"
            world.problem(f"{text}, which holds {shown(commit.contents.get(key, ABSENT))}")


async def _collect(world: World, graveler: Graveler, branch: str) -> None:
    """Adds to the history the commits that a branch's operations name, and the branch's head."""
    history = world.history
    repository_id, branch_id = branch.split("/")
    try:
        repository = await graveler.repositories.get(repository_id)
    except TarnError:
        return
    wanted = {op.commit_id for op in history.ops if op.commit_id and op.branch == branch}
    if branch == "lake/main":
        wanted |= {commit_id for _, commit_id, _, _ in world.commit_reads}
    try:
        version = await graveler.branches.fresh(BranchName(repository, BranchId(branch_id)))
    except TarnError:
        pass
    else:
        history.heads[branch] = version.branch.commit_id
        wanted.add(version.branch.commit_id)
    left = sorted(wanted)
    while left:
        commit_id = left.pop()
        if commit_id not in history.commits:
            left += await _read_commit(world, graveler, repository, CommitId(commit_id))
    if branch == "lake/main":
        for commit_id in sorted(world.built - set(history.commits)):
            await _read_commit(world, graveler, repository, CommitId(commit_id), is_published=False)
        history.unread = world.built - set(history.commits)


async def _read_commit(
    world: World,
    graveler: Graveler,
    repository: Repository,
    commit_id: CommitId,
    *,
    is_published: bool = True,
) -> tuple[str, ...]:
    """Adds a commit with its contents to the history; returns its parents. The checker reports a missing one.

    A collection may have taken blocks of a commit that was never published: it was built for so long that a sweep came
    and went before its row was written. Its last look saw that, and it was made again.
    """
    history = world.history
    try:
        commit = await graveler.commits.get(repository, commit_id)
    except TarnError:
        return ()
    paths: list[str] = []
    entries: list[bytes] = []
    try:
        paths, entries = await graveler.committed.page(
            repository.storage_namespace, commit.metarange_id, "", 1000
        )
    except TarnError as error:
        if not is_published:
            return ()
        history.dangling.append(f"{commit_id}: {error.message}")
    lines = zip(paths, map(world.values.of, entries), strict=True)
    contents = history.lines(f"commit {commit_id}", lines)
    history.commits[commit_id] = Commit(
        commit_id, commit.message, commit.parents, contents, commit.create_time_us
    )
    is_kept = is_published and not world.kept.is_expired(commit_id)
    for path, value in contents.items() if is_kept else ():
        has_reason = world.kept.is_doubtful(value) or world.erased.has_row(
            world.values.block(value)
        )
        if not has_reason and not await world.values.has_block(value):
            history.dangling.append(f"{commit_id} {path}: no block of v{value}")
    return commit.parents
