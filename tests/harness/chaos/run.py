"""One run: clients under faults, the quiet end, the verdict."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slowness import scaled
from tests.support.check.checker import Report, Violation, check
from tests.support.check.history import OpKind, Outcome

from chaos.clients import Client, Habits
from chaos.fault_schedule import FaultEvent, FaultProfile, FaultSchedule
from chaos.final_check import FinalCheck
from chaos.ledger import Ledger
from chaos.metadata import metadata_of
from chaos.node import Node
from chaos.s3 import S3Client, Target
from chaos.wire import Wires

__all__ = ["Plan", "Run", "play"]

_CALM_SECONDS = scaled(60.0)
_READERS = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a run.

    Attributes:
        seed: seed of clients and faults. It determines the next operation of each, but not its time.
        seconds: greatest length of the part with faults.
        hits: number of hits after which it ends earlier; 0 for no limit.
        clients: number of clients.
        drop_seconds: the drop delay, and the time between two searches for due drops; the last reads follow
            after it.
    """

    seed: int
    seconds: float = 60.0
    hits: int = 0
    clients: int = 10
    drop_seconds: float = 5.0
    habits: Habits = field(default_factory=Habits)
    profile: FaultProfile = field(default_factory=FaultProfile)


@dataclass(slots=True)
class Run:
    """The result of a run."""

    plan: Plan
    ledger: Ledger
    events: Sequence[FaultEvent]
    hits: int
    fault_seconds: float
    report: Report

    @property
    def violations(self) -> list[Violation]:
        """Broken promises; I0 stands for answers that are never allowed."""
        return [*self.report.violations, *(Violation("I0", text) for text in self.ledger.problems)]

    def lines(self) -> list[str]:
        """The figures of the run, for people."""
        counts = self.ledger.counts
        kinds = Counter(event.kind for event in self.events)
        broken = sum(event.hit_count for event in self.events)
        head = (
            f"seed {self.plan.seed}: {counts.total():,} operations of {self.plan.clients} clients"
        )
        lines = [
            f"{head} in {self.fault_seconds:.0f} s with faults",
            f"{'':14}     ok   fail unknown",
        ]
        for what in sorted({what for what, _ in counts}):
            row = (counts[what, outcome] for outcome in Outcome)
            lines.append(f"{what:14}" + "".join(f"{count:7,}" for count in row))
        reasons = sorted(self.ledger.reasons.items(), key=lambda each: -each[1])
        lines.append("unknown: " + ", ".join(f"{count} {why}" for why, count in reasons))
        lines.append(
            f"workers killed {kinds['kill']}, stopped {kinds['stop']}; node killed {kinds['crash']}"
        )
        lines.append(f"kills that hit operations in flight: {self.hits} ({broken} operations)")
        lines.append(self._fates())
        lines.append(f"commits read back: {len(self.ledger.history.commits)}")
        lines += [f"{count:7,} {what}" for what, count in sorted(self.report.statistics.items())]
        lines.append(f"{len(self.violations)} promises broken")
        return lines

    def _fates(self) -> str:
        """Counts the unknown writes that were read: kills before and after the effect."""
        history = self.ledger.history
        seen = {op.value for op in history.ops if op.kind in (OpKind.GET, OpKind.LIST) and op.is_ok}
        seen |= {value for commit in history.commits.values() for value in commit.contents.values()}
        puts = [op for op in history.ops if op.kind is OpKind.PUT and op.outcome is Outcome.INFO]
        effects = sum(op.value in seen for op in puts)
        return (
            f"unknown puts and copies: {effects} took effect, {len(puts) - effects} were never seen"
        )


async def play(plan: Plan, target: Target, nodes: Sequence[Node]) -> Run:
    """Runs a plan on an installation with an existing repository and empty branches.

    Args:
        plan: the plan.
        target: addresses for clients.
        nodes: nodes that get faults; all of the target's, or some.
    """
    ledger, wires = Ledger(), Wires()
    for branch in target.branches:
        ledger.history.finish(ledger.begin("admin", OpKind.CREATE, branch), Outcome.OK)
    # The names of random streams stay as they are, so that seeds keep their runs.
    faults = FaultSchedule(
        nodes, wires, plan.profile, random.Random(f"storm {plan.seed}"), ledger.history.tick
    )
    async with metadata_of(target, random.Random(plan.seed)) as metadata:

        def some_s3(name: str, habits: Habits) -> S3Client:
            rng = random.Random(f"wire {plan.seed} {name}")
            return S3Client(
                target, wires, rng, patience_seconds=habits.patience_seconds, rides=habits.rides
            )

        def some_client(name: str, habits: Habits) -> Client:
            rng = random.Random(f"client {plan.seed} {name}")
            s3 = some_s3(name, habits)
            return Client(name, ledger, s3, metadata, target.branches, habits, rng)

        began = time.monotonic()
        await _run_clients(
            plan, faults, [some_client(f"c{n}", plan.habits) for n in range(plan.clients)]
        )
        seconds = time.monotonic() - began
        calm = replace(plan.habits, patience_seconds=_CALM_SECONDS, haste_rate=0.0, rides=1000)
        readers = [some_s3(f"reader {n}", calm) for n in range(_READERS)]
        look = FinalCheck(target, ledger, some_client("last", calm), readers, metadata)
        for node in nodes:
            await node.crash()  # clears all caches and ends all requests
            await node.restart()
        ledger.history.begin_quiet_end()
        await look.at_branches()
        await look.commit()
        await look.at_branches()
        await asyncio.sleep(2 * plan.drop_seconds)
        await look.at_branches()
        await look.at_commits()
    await wires.close_all()
    return Run(plan, ledger, faults.events, faults.hits, seconds, check(ledger.history))


async def _run_clients(plan: Plan, faults: FaultSchedule, clients: Sequence[Client]) -> None:
    """Runs the clients until the last fault."""
    end = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.run(end))
        await faults.run(plan.seconds, plan.hits)
        end.set()
