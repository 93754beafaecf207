"""Faults of three real nodes while clients work: no promise is broken.

Two gravelers, whose clocks are four seconds apart, serve behind one S3 endpoint.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from cassandra_faults import NodeFaults
from cassandra_proxies import Cluster, kv_url
from chaos.clients import Client, Habits
from chaos.final_check import FinalCheck
from chaos.ledger import Ledger
from chaos.metadata import Metadata, metadata_of
from chaos.node import Node
from chaos.s3 import S3Client, Target
from chaos.wire import Wires
from slowness import scaled
from tests.support.check.checker import Violation, check
from tests.support.check.history import OpKind, Outcome

pytestmark = [pytest.mark.cassandra, pytest.mark.slow, pytest.mark.timeout(600)]

SKEWED = Path(__file__).parents[2] / "harness" / "skewed"
SKEW_SECONDS = 2.0
DROP_SECONDS = 9.0
"""Readers trust a record for half of the drop delay, which is less than the drop delay minus both skews."""
BOUND_SECONDS = 25.0
"""Greatest duration of a request under any fault of the nodes: 20 s (docs/operate/cassandra.md, "When nodes fail"),
and some for a busy machine."""
PATIENCE_SECONDS = scaled(60.0)
"""Clients wait longer than the bound, so that a failure tells how long an answer took."""
WELL_SECONDS = scaled(60.0)
"""Time within which each worker serves again after the nodes are back, also on a busy machine."""
WORK_SECONDS = scaled(120.0)
PUTS, COMMITS = 100, 5
"""Least number of acknowledged operations: a run that does nothing is no proof."""
SLOWEST = 5
"""Requests of each kind of operation that a failure shows."""
CLIENTS = 8
HABITS = Habits(
    keys=tuple(f"t{n % 3}/k{n:02}" for n in range(9)),
    patience_seconds=PATIENCE_SECONDS,
    haste_rate=0.0,
    think_seconds=0.02,
    weights={"put": 6, "get": 5, "delete": 3, "delete_many": 1, "walk": 1.5, "commit": 2},
)
CALM = replace(HABITS, rides=1000)
SEED = 7


@dataclass(slots=True)
class Clients:
    """A running Tarn and the clients that work on it.

    Attributes:
        made: all connections.
        began: when the work begins, on the monotonic clock, in seconds.
    """

    target: Target
    ledger: Ledger
    faults: NodeFaults
    wires: Wires = field(default_factory=Wires)
    made: list[S3Client] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def s3(self, name: str, habits: Habits = HABITS) -> S3Client:
        rng = random.Random(f"wire {SEED} {name}")
        patience, rides = habits.patience_seconds, habits.rides
        made = S3Client(self.target, self.wires, rng, patience_seconds=patience, rides=rides)
        self.made.append(made)
        return made

    def close(self) -> None:
        """Closes all connections."""
        for made in self.made:
            made.close()

    def client(self, name: str, metadata: Metadata, habits: Habits = HABITS) -> Client:
        rng = random.Random(f"client {SEED} {name}")
        s3, branches = self.s3(name, habits), self.target.branches
        return Client(name, self.ledger, s3, metadata, branches, habits, rng)

    @asynccontextmanager
    async def clients(self, metadata: Metadata) -> AsyncIterator[None]:
        """Runs clients during the block."""
        end = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(self.client(f"c{number}", metadata).run(end))
            yield
            end.set()

    def slowest(self) -> str:
        """Describes the slowest requests and the course of the faults."""
        requests = self.ledger.slowest(SLOWEST, self.began)
        return "\n".join(["seconds since the begin", *self.faults.lines(self.began), *requests])

    async def look(self, metadata: Metadata) -> None:
        """Reads everything at the quiet end, before and after a commit and the drop of its tokens."""
        last = self.client("last", metadata, CALM)
        readers = [self.s3(f"reader {n}", CALM) for n in range(4)]
        look = FinalCheck(self.target, self.ledger, last, readers, metadata)
        await look.at_branches()
        await look.commit()
        await look.at_branches()
        await look.at_commits()
        await asyncio.sleep(DROP_SECONDS + 2 * SKEW_SECONDS + 1)
        await look.at_branches()


@pytest.fixture
async def lake(cassandra_cluster: Cluster, tmp_path: Path) -> AsyncIterator[Clients]:
    cluster = cassandra_cluster
    cluster.until_whole()
    (tmp_path / "skew").mkdir()
    keyspace = "faults"
    node = Node(
        tmp_path,
        ("--workers", "2", "--kv", kv_url(cluster.nodes, keyspace)),
        {
            "TARN_GRAVELER_DROP_DELAY": f"{DROP_SECONDS:.0f}s",
            "TARN_GRAVELER_CLEANUP_POLL": "500ms",
            "PYTHONPATH": os.pathsep.join([str(SKEWED), os.environ.get("PYTHONPATH", "")]),
            "SKEW_FOLDER": str(tmp_path / "skew"),
            "SKEW_SECONDS": f"{SKEW_SECONDS},{-SKEW_SECONDS}",
        },
    )
    faults = NodeFaults(cluster, keyspace, random.Random(SEED))
    node.start()
    try:
        lake = Clients(target_on(node), ledger_of_new_branches(), faults)
        yield lake
        lake.close()
    finally:
        await faults.start_all()
        node.stop()


def target_on(node: Node) -> Target:
    """Returns the history of a repository with two new branches."""
    tarn = node.tarn
    tarn.ok("repo", "create", "chaos")
    tarn.ok("branch", "create", "chaos/dev")
    return Target(
        (tarn.endpoint,),
        (tarn.server,),
        tarn.auth_server,
        tarn.access_key_id,
        tarn.secret_access_key,
    )


def ledger_of_new_branches() -> Ledger:
    ledger = Ledger()
    for branch in ("main", "dev"):
        ledger.history.finish(ledger.begin("admin", OpKind.CREATE, branch), Outcome.OK)
    return ledger


async def refused(lake: Clients, seconds: float) -> None:
    """Checks for `seconds` that every request is answered in time, with 503 and Retry-After."""
    client = lake.s3("quorum", CALM)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for method in ("PUT", "GET"):
            await client.ready()
            with lake.ledger.timed(f"{method} main/quorum") as timed:
                answer = await client.ask(method, "main/quorum", body=b"x" * (method == "PUT"))
                timed.answer = str(answer.status)
            assert answer.status == 503, answer
            assert int(answer.headers["retry-after"]) >= 1


async def worked(lake: Clients) -> None:
    """Returns when the clients have done enough: a slow machine serves less during the faults."""
    counts, end = lake.ledger.counts, time.monotonic() + WORK_SECONDS
    while counts["put", Outcome.OK] < PUTS or counts["commit", Outcome.OK] < COMMITS:
        assert time.monotonic() < end, counts
        await asyncio.sleep(0.1)


async def well(lake: Clients) -> None:
    """Returns when twenty new connections in a row are answered, which is enough to reach every worker."""
    end = time.monotonic() + WELL_SECONDS
    answered = 0
    while answered < 20:
        client = lake.s3("well", CALM)
        await client.ready()
        answer = await client.ask("GET", "", {"list-type": "2", "prefix": "main/"})
        client.close()
        if answer.status == 200:
            answered += 1
            continue
        assert time.monotonic() < end, answer
        answered = 0
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("through", ["few", pytest.param("many", marks=pytest.mark.long)])
async def test_faults_of_nodes_break_no_promise(lake: Clients, through: str) -> None:
    async with metadata_of(lake.target, random.Random(SEED)) as metadata:
        async with lake.clients(metadata):
            await THROUGH[through](lake)
            await worked(lake)
        await well(lake)
        await lake.look(metadata)
    report = check(lake.ledger.history)
    problems = [Violation("I0", text) for text in lake.ledger.problems]
    counts, faults = lake.ledger.counts, lake.faults.counts
    assert [str(each) for each in (*report.violations, *problems)] == []
    assert sum(count for what, count in faults.items() if "cas_update" in what) >= 5, faults
    assert counts["put", Outcome.OK] >= PUTS, counts
    assert counts["commit", Outcome.OK] >= COMMITS, counts
    # A commit may take as long as its caller says.
    s3 = [each.seconds for each in lake.ledger.requests if not each.what.startswith("COMMIT")]
    assert max(s3) < BOUND_SECONDS, lake.slowest()


async def through_few(lake: Clients) -> None:
    """Injects each kind of fault once; the start of a node takes ten seconds of a processor."""
    faults = lake.faults
    await faults.lose(20)
    await faults.pause(1, seconds=5)
    await faults.kill_all_but(1)
    await refused(lake, seconds=3)
    await faults.start_all()


async def through_many(lake: Clients) -> None:
    """Injects one fault after another."""
    faults = lake.faults
    await faults.lose(25)
    await faults.kill(2, seconds=3)
    await faults.pause(1, seconds=5)
    await faults.kill(0, seconds=0)  # the others have just sent their hints to the third
    await faults.kill_all_but(1)
    await refused(lake, seconds=5)
    await faults.start_all()
    await faults.kill_all_but(None)
    await faults.start_all()
    await faults.lose(10)


THROUGH = {"few": through_few, "many": through_many}
