"""How many operations a run must acknowledge at least to prove anything.

A run in which every request is refused breaks no promise. So each plan has a least number of acknowledged
operations of each kind, and a run that falls short fails. The number follows from the plan: the mean number of
requests of a kind, times the share that is acknowledged in such a profile, less the deviation that chance
causes. If that is 0 for one run, it is greater for many runs together.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from tests.sim.plan import Plan
from tests.support.check.history import GONE, History, Op, OpKind

__all__ = [
    "ACKNOWLEDGED",
    "DELETED",
    "DIFFERENCE",
    "KINDS",
    "SWEPT",
    "acknowledged",
    "collected_too_little",
    "least_acknowledged",
    "shortfalls",
]

_CHANCE = 1e-4
"""Probability that a correct run falls short."""

_ALWAYS = ("put", "get")
"""Kinds of which every run without collections acknowledges some, if `_ALWAYS_FROM` are expected. Where blocks are
collected, each object of a run may take longer than its address may be staged."""
_ALWAYS_FROM = 3.0

_PATIENT_SECONDS = 10.0
_MEAN_MAX = 600.0
"""Above this mean, e^-mean underflows, and the normal distribution is close enough."""
_COMPLETED = 0.5
"""Share of the uploads that are completed; the others are aborted, abandoned or conditional."""
_IN_TIME = 0.5
"""Share of the rows that are written in time if a write may take longer than an address may be staged."""
_BOTH_EXIST = 0.7
"""Share of the merges of a plan with retention rules whose two refs exist: a branch is deleted again and again."""
_TURNS = 4.0
"""Turns of one admin; most admins have more."""

ACKNOWLEDGED = "acknowledged under faults: "
"""Prefix of a kind: together they name its count in a run's statistics."""

DELETED = "collection: blocks deleted"
SWEPT = "collection: sweep"
"""Counts of a run's statistics: the deleted blocks, and the sweeps that came to an end beside the clients."""
_SWEEPS_EACH = 1
"""Sweeps of a run on average; most runs have more."""

DIFFERENCE = "difference"
"""The note of reads that are lines of uncommitted differences."""

KINDS = (
    *("put", "conditional put", "delete", "get", "list", "commit", "upload", "create", "remove"),
    *("merge", "pick", "reset", "part", "move"),
)

# By profile: no faults; no faults but many slow hops; any faults. Each share is below the least one of 200
# seeds on 2026-11-22; for kinds of which some runs have none, it is far below the mean. In one of
# 2,000 seeds on 2026-11-29, each of 39 merges met an injected fault (410736 with compactors).
_SHARES: Mapping[str, tuple[float, float, float]] = {
    "put": (0.6, 0.3, 0.15),
    "conditional put": (0.1, 0.1, 0.05),
    "delete": (0.5, 0.2, 0.06),
    "get": (0.6, 0.6, 0.25),
    "list": (0.3, 0.4, 0.1),
    "commit": (0.4, 0.4, 0.1),
    "upload": (0.4, 0.4, 0.15),
    "create": (0.5, 0.5, 0.3),
    "remove": (0.5, 0.5, 0.3),
    "merge": (0.2, 0.3, 0.15),
    "pick": (0.1, 0.1, 0.1),
    "reset": (0.5, 0.5, 0.3),
    "part": (0.3, 0.3, 0.2),
    "move": (0.25, 0.25, 0.25),
}


def _asked(plan: Plan) -> dict[str, float]:
    """Returns how many operations of each kind the clients of a plan request on average (`Client.run`)."""
    weights = plan.weights
    turn = plan.clients * plan.operations / sum(weights.values())
    admins = plan.has_branch_turns + plan.has_repository_turns
    return {
        "put": turn * (weights["put"] + weights["scratch"]),
        "conditional put": turn * weights["put_if"],
        "delete": turn * (weights["delete"] + weights["scratch"] + (plan.keys + 1) // 2),
        "get": turn * weights["get"],
        "list": turn * weights["list_page"],
        "commit": turn * weights["commit"],
        "upload": turn * weights["multipart"] * _COMPLETED,
        "create": _TURNS * admins,
        "remove": _TURNS * admins,
        "merge": turn * weights["merge"],
        "pick": turn * weights["pick"],
        "reset": turn * weights["reset"],
        "part": turn * weights["part"],
        "move": turn * weights["move"],
    }


def _in_time(plan: Plan) -> float:
    """Returns the share of the rows that a slow store writes while their addresses may be staged."""
    collecting, profile = plan.collecting, plan.profile
    if collecting is None or "write rows" not in profile.slow_what:
        return 1.0
    return _IN_TIME if profile.slow_seconds > collecting.staging_seconds else 1.0


def _profile(plan: Plan) -> int:
    """Returns the index of the plan's share."""
    profile = plan.profile
    rates = (
        *(profile.refused_rate, profile.lost_rate, profile.late_rate, profile.down_rate),
        *(profile.raised_rate, profile.queued_rate, profile.pause_rate, plan.away_seconds),
    )
    if any(rates) or plan.crash_seconds or plan.hang_up_seconds < _PATIENT_SECONDS:
        return 2
    if plan.collecting is not None and plan.is_narrow:
        return 2  # slow steps last longer than an address may be staged, and than a build goes unnoticed by sweeps
    return 1 if plan.is_narrow or plan.seed % 2 == 0 else 0


def least_acknowledged(plans: Iterable[Plan]) -> dict[str, int]:
    """Returns for each kind how many operations the runs of these plans acknowledge at least, all together."""
    expected, always = dict.fromkeys(KINDS, 0.0), set[str]()
    for plan in plans:
        for kind, count in _asked(plan).items():
            share = _SHARES[kind][_profile(plan)]
            if kind == "put":
                share *= _in_time(plan)
            if kind == "merge" and plan.expiring is not None:
                share *= _BOTH_EXIST
            expected[kind] += count * share
            is_expected = count * share >= _ALWAYS_FROM
            if kind in _ALWAYS and is_expected and plan.collecting is None:
                always.add(kind)
    return {kind: max(_least(mean), int(kind in always)) for kind, mean in expected.items()}


def _least(mean: float) -> int:
    """Returns the least number of events that is not improbable if the mean is `mean` (Poisson)."""
    if mean > _MEAN_MAX:
        return math.floor(mean - 5 * math.sqrt(mean))
    count, below = 0, math.exp(-mean)
    term = below
    while below < _CHANCE:
        count += 1
        term *= mean / count
        below += term
    return count


def acknowledged(history: History) -> Counter[str]:
    """Counts the operations that were acknowledged before the quiet end, by kind; the set-up does not count.

    An operation counts for the kind whose code answered it, so that a system that refuses all of a kind falls
    short: a conditional completion is an upload; uncommitted differences are not listings; and the answer that
    there is no branch is not a read.
    """
    told = (op for op in history.ops if op.is_ok and op.inv < history.quiet_at)
    return Counter(_kind(op) for op in told if op.proc != "admin" and not _is_other(op))


def _kind(op: Op) -> str:
    if op.is_upload:
        return "upload"
    if op.kind is OpKind.PUT and op.expected is not None:
        return "conditional put"
    if op.kind is OpKind.DELETE and op.expected is not None:
        return "conditional delete"
    if op.kind is OpKind.REVERT:
        return "pick"
    if op.kind is OpKind.RESET and op.part:
        return "part"
    return str(op.kind)


def _is_other(op: Op) -> bool:
    """Whether a read was answered by other code than the lookup and the listing of entries."""
    return op.note == DIFFERENCE or (op.value == GONE and op.kind in {OpKind.GET, OpKind.LIST})


def shortfalls(counts: Mapping[str, int], plans: Iterable[Plan]) -> list[str]:
    """Describes the kinds of operations that were acknowledged too rarely."""
    return [
        f"{counts.get(kind, 0)} operations {kind!r} were acknowledged, {least} are the least: "
        "the run proves nothing about them; find out who refused the others"
        for kind, least in least_acknowledged(plans).items()
        if counts.get(kind, 0) < least
    ]


def collected_too_little(statistics: Mapping[str, int], plans: Iterable[Plan]) -> list[str]:
    """Describes runs with collections that deleted next to nothing, all together. One alone may delete nothing."""
    runs = sum(plan.collecting is not None for plan in plans)
    least = {DELETED: runs, SWEPT: _SWEEPS_EACH * runs} if runs > 1 else {}
    return [
        f"{statistics.get(what, 0)} times {what!r} in {runs} runs, {count} are the least: "
        "they prove nothing about collections"
        for what, count in least.items()
        if statistics.get(what, 0) < count
    ]
