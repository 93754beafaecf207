"""Draws the plan of a run from its seed: the size of the installation, its faults, and its clients' load."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.sim import narrow
from tests.sim.collecting import Collecting, draw_collecting
from tests.sim.erasing import Erasing, draw_erasing
from tests.sim.expiring import Expiring, draw_expiring
from tests.sim.narrow import Narrowing
from tests.support.faults.modes import Mode
from tests.support.sim.faults import HOPS, FaultProfile

__all__ = [
    "Plan",
    "draw",
    "planned",
    "with_collectors",
    "with_compactors",
    "with_equal_objects",
    "with_erasures",
    "with_expiry",
    "with_links",
    "with_online",
    "with_stray_clocks",
]


@dataclass(frozen=True)
class Plan:
    """The parameters of a run.

    Attributes:
        store: `sqlite` or `cassandra`.
        drop_delay_seconds: the drop delay of rules 2 and 5.
        cache_seconds: how long a replica uses a cached branch record.
        skew_seconds: greatest error of a wall clock.
        crash_seconds: mean time between crashes of a replica; 0: none.
        hang_up_seconds: how long clients wait for an answer.
        claim_seconds: how long a completion of an upload may be silent before another one takes over; a
            gateway waits a fifth of it for an answer, as in production.
        away_seconds: mean time between outages in which the block store takes no writes; 0: none.
        is_narrow: whether the plan is narrow (`tests.sim.narrow`).
        has_side: whether there is a second branch, `lake/side`, with writers of its own.
        deleters: users who delete by condition.
        view_seconds: mean pause between the changes of a bucket view; 0: there is none.
        compact_seconds: mean pause between the compactions of each of two compactors; 0: there are none.
        quiet_rate: share of turns in which a client waits for a while, so that caches grow old.
        has_leaps: whether listings leap over single hidden rows; otherwise they read them.
        collecting: the collections of garbage; None: there are none, and blocks of objects are not placed.
        online_seconds: the delay of online deletion, in a plan with collections; 0: there is none.
        expiring: retention rules, in a plan with collections; None: every commit keeps its objects.
        erasing: erasures, in a plan with collections; None: there are none.
        link_seconds: mean pause between the links of each of two clients, in a plan with collections; 0: there are
            none.
        equal_rate: share of the objects that are equal to earlier ones: same bytes, another address.
        stray_rate: share of the addresses, in a plan with collections, that come from a clock far ahead.
        paged_rate: share of the listings that are read to their end, page by page.
        keeps_events: whether writes and deletes of objects leave events, which `tests.sim.journaled` checks.
    """

    seed: int
    store: str
    replicas: int
    gateways: int
    clients: int
    operations: int
    keys: int
    drop_delay_seconds: float
    cache_seconds: float
    skew_seconds: float
    crash_seconds: float
    hang_up_seconds: float
    claim_seconds: float
    away_seconds: float
    think_seconds: float
    quiet_rate: float
    page_rows: int
    rows_mean: int
    put_weight: int
    get_weight: int
    commit_weight: int
    delete_weight: int
    scratch_weight: int
    upload_weight: int
    tag_weight: int
    difference_weight: int
    has_branch_turns: bool
    has_repository_turns: bool
    has_namesakes: bool
    profile: FaultProfile
    conditional_weight: int
    merge_weight: int = 0
    pick_weight: int = 0
    reset_weight: int = 0
    move_weight: int = 0
    part_weight: int = 0
    has_side: bool = False
    is_narrow: bool = False
    compact_seconds: float = 0.0
    has_leaps: bool = False
    collecting: Collecting | None = None
    online_seconds: float = 0.0
    expiring: Expiring | None = None
    erasing: Erasing | None = None
    link_seconds: float = 0.0
    equal_rate: float = 0.0
    stray_rate: float = 0.0
    paged_rate: float = 0.0
    view_seconds: float = 0.0
    deleters: int = 0
    session_users: int = 0
    keeps_events: bool = False

    @property
    def registered_seconds(self) -> float:
        """The configured drop delay: the drop delay that readers rely on, plus the difference of two clocks."""
        return max(self.drop_delay_seconds + 2 * self.skew_seconds, 4 * self.skew_seconds)

    @property
    def view_users(self) -> int:
        """How many users work through the view."""
        return (1 if self.session_users else _VIEW_USERS) if self.view_seconds else 0

    @property
    def has_moves(self) -> bool:
        """Whether clients merge, pick, reset or move branches."""
        weights = (self.merge_weight, self.pick_weight, self.reset_weight, self.move_weight)
        return any((*weights, self.part_weight))

    @property
    def weights(self) -> dict[str, int]:
        """How often a client performs each operation, by the name of the method."""
        return {
            "put": self.put_weight,
            "delete": self.delete_weight,
            "delete_many": 1,
            "get": self.get_weight,
            "list_page": 3,
            "commit": self.commit_weight,
            "multipart": self.upload_weight,
            "tag": self.tag_weight,
            "difference": self.difference_weight,
            "scratch": self.scratch_weight,
            "put_if": self.conditional_weight,
            "merge": self.merge_weight,
            "pick": self.pick_weight,
            "reset": self.reset_weight,
            "move": self.move_weight,
            "part": self.part_weight,
        }

    def line(self) -> str:
        """Describes the plan in one line."""
        return (
            f"seed {self.seed}: {self.store}, {self.replicas} replicas, {self.clients} clients, "
            f"{self.keys} keys, drop delay {self.drop_delay_seconds} s, cache {self.cache_seconds} s, "
            f"skew {self.skew_seconds} s, crashes every {self.crash_seconds} s, "
            f"branches {self.has_branch_turns}, repositories {self.has_repository_turns}, "
            f"slow: {sorted(self.profile.slow_what)}, "
            f"{replace(self.profile, slow_what=frozenset())}"
            f"{'' if self.collecting is None else f', {self.collecting}'}"
            f"{'' if self.expiring is None else f', {self.expiring}'}"
            f"{'' if self.erasing is None else f', {self.erasing}'}"
            f"{f', links every {self.link_seconds} s' if self.link_seconds else ''}"
            f"{f', equal objects {self.equal_rate}' if self.equal_rate else ''}"
            f"{f', addresses from the future {self.stray_rate}' if self.stray_rate else ''}"
        )


_VIEW_USERS = 3

_KINDS: Mapping[int, Narrowing] = {
    2: narrow.clocks,
    3: narrow.uploads,
    5: narrow.contention,
    6: narrow.queues,
    7: narrow.late_deletes,
    9: narrow.late_conditions,
    10: narrow.lost_answers,
    11: narrow.uploads,
    12: narrow.late_rechecks,
    13: narrow.late_scans,
    14: narrow.hasty_drops,
    15: narrow.contention,
}
"""The narrow plans, by the remainder of the seed modulo 16."""

_MOVE_KINDS: Mapping[int, Narrowing] = {
    0: narrow.parts,
    4: narrow.merges,
    20: narrow.resets,
    24: narrow.merges,
}
"""The narrow plans with merges, resets and hard moves, by the remainder of the seed modulo 32."""

_TOMBSTONES = 15
"""The remainder of the seed modulo 32 of the narrow plans with leaps, instead of one with contention."""

_WITH_MOVES = {16, 17}
"""Remainders of the seed modulo 32 of the wide plans that have merges, resets and hard moves, too."""
_WITHOUT_LEAPS = 16
"""The remainder of the wide plans whose listings read every hidden row, as those of the narrow plans do."""


_COMPACTED = {1, 8, 12, 17, 19, 21, 25, 26, 27, 29, 30, 31}
"""Remainders of the seed modulo 32 of the plans with compactors: of each kind but those with moves."""

_COMPACTED_MOVES = {24, 36, 52, 64, 88, 96, 100, 116}
"""Remainders of the seed modulo 128 of the plans with merges, resets or hard moves that have compactors."""


_AS_DRAWN = 1
"""The remainder of the seed modulo 4 of the plans that stay as they are drawn when collectors are added."""


_PAGED_RATE = 0.5
_PAGED_FROM = 96
"""The first seed whose listings are read page by page. Recorded seeds of guards are smaller, and stay as they are."""


_LINKED = {5, 6, 7}
"""Remainders of the seed modulo 8 of the plans with links, in runs with collections or erasures."""


_RARELY_EQUAL = (0.0, 0.0, 0.1, 0.3)
_EQUAL_RATES: Mapping[Mode, Sequence[float]] = {Mode.ERASE: (0.0, 0.1, 0.3, 0.5)}
"""Rates of equal objects of the plans of a mode; in half of most modes there are none."""
_LONG_UNCOMMITTED = 0.5


_TURNED = {1, 4, 7}
"""The same of plans with a branch that is deleted and created again, in runs with collections."""


def draw(seed: int) -> Plan:
    """Draws the plan of a seed: of 32, 28 are narrow, two are mixed, and two are races.

    In some of each kind, compactors work beside the clients.
    """
    plan = _draw(seed)
    if seed % 32 in _COMPACTED or seed % 128 in _COMPACTED_MOVES:
        return with_compactors(plan)
    return plan


def planned(seed: int, mode: Mode) -> Plan:
    """Draws the plan of a seed, and adds what plays beside the clients in a mode."""
    add = _ADDED.get(mode)
    plan = draw(seed) if add is None else add(draw(seed))
    plan = replace(plan, paged_rate=_PAGED_RATE if seed >= _PAGED_FROM else 0.0)
    return with_equal_objects(plan, mode)


def with_equal_objects(plan: Plan, mode: Mode) -> Plan:
    """Makes clients of some plans write equal objects. The rate is drawn apart, and so are the objects.

    Beside erasures, half of these plans commit rarely and compact: equal objects meet in compacted listings, and
    uncommitted entries grow so old that erasures discard them.
    """
    rng = random.Random(f"equal {plan.seed}")
    plan = replace(plan, equal_rate=rng.choice(_EQUAL_RATES.get(mode, _RARELY_EQUAL)))
    if mode is Mode.ERASE and plan.equal_rate and rng.random() < _LONG_UNCOMMITTED:
        return replace(plan, keys=3, commit_weight=1, compact_seconds=rng.choice([0.1, 0.3]))
    return plan


def with_deleters(plan: Plan) -> Plan:
    """Adds users who delete by condition to a plan, which then has few keys, and conditional writes."""
    rng = random.Random(f"with deleters {plan.seed}")
    return replace(
        plan,
        deleters=rng.choice([2, 3]),
        clients=min(plan.clients, 3),
        keys=rng.choice([1, 2, 3, 6]),
        conditional_weight=max(plan.conditional_weight, 4),
    )


def with_views(plan: Plan) -> Plan:
    """Adds a bucket view and its users to a plan, which then has two branches."""
    rng = random.Random(f"with views {plan.seed}")
    return replace(
        plan, has_side=True, view_seconds=rng.choice([0.1, 0.3, 1.0]), clients=min(plan.clients, 3)
    )


def with_sessions(plan: Plan) -> Plan:
    """Adds users of session keys to a plan with a view. Few others play beside them."""
    rng = random.Random(f"with sessions {plan.seed}")
    return replace(
        with_views(plan),
        session_users=rng.choice([2, 3]),
        clients=min(plan.clients, 2),
        gateways=2,
        hang_up_seconds=rng.choice([2.0, 5.0]),
    )


def with_stray_clocks(plan: Plan) -> Plan:
    """Makes addresses of some plans come from a clock that is far ahead, as those of a gateway whose clock is wrong."""
    rng = random.Random(f"stray {plan.seed}")
    return replace(plan, stray_rate=rng.choice([0.0, 0.0, 0.1]))


def with_compactors(plan: Plan) -> Plan:
    """Adds compactors to a plan. Their pause is drawn apart, so that everything else stays as it is."""
    rng = random.Random(f"compaction {plan.seed}")
    return replace(plan, compact_seconds=rng.choice([0.05, 0.05, 0.3]))


def with_collectors(plan: Plan) -> Plan:
    """Adds collectors to a plan. Three of four plans become narrow ones that are made for collections."""
    if is_brisk := plan.seed % 4 != _AS_DRAWN:
        plan = narrow.collections(plan, random.Random(f"collections {plan.seed}"))
    collecting = draw_collecting(
        plan.seed,
        plan.skew_seconds,
        plan.drop_delay_seconds,
        is_brisk=is_brisk,
        is_steady=is_brisk and plan.seed % 2 == 0,
    )
    return replace(plan, collecting=collecting)


def with_online(plan: Plan) -> Plan:
    """Adds collectors and online deletion to a plan, and makes it replace and copy few objects often."""
    plan = with_collectors(plan)
    assert plan.collecting is not None, "it has collectors"
    rng = random.Random(f"online {plan.seed}")
    return replace(
        plan,
        keys=rng.choice([2, 3, 6]),
        put_weight=10,
        get_weight=8,
        delete_weight=rng.choice([3, 6]),
        commit_weight=rng.choice([1, 3, 6]),
        conditional_weight=rng.choice([0, 0, 2]),
        quiet_rate=0.0,
        think_seconds=rng.choice([0.05, 0.15]),
        replicas=rng.choice([1, 1, 2]),
        cache_seconds=rng.choice([0.05, 30.0]),
        online_seconds=min(rng.choice([0.1, 0.3]), plan.collecting.reading_seconds),
    )


def with_expiry(plan: Plan) -> Plan:
    """Adds collectors and retention rules to a plan, and makes it commit often and go back to old commits."""
    plan = with_collectors(plan)
    assert plan.collecting is not None, "it has collectors"
    rng = random.Random(f"with expiry {plan.seed}")
    return replace(
        plan,
        keys=rng.choice([2, 3, 6]),
        put_weight=8,
        get_weight=3,
        commit_weight=8,
        merge_weight=rng.choice([0, 3]),
        pick_weight=rng.choice([0, 3]),
        move_weight=rng.choice([1, 4]),
        reset_weight=0,
        tag_weight=rng.choice([1, 3]),
        has_side=True,
        has_branch_turns=True,
        has_repository_turns=False,
        has_namesakes=False,
        think_seconds=rng.choice([0.05, 0.15]),
        cache_seconds=rng.choice([0.05, 2.0]),
        expiring=draw_expiring(plan.seed),
    )


def with_erasures(plan: Plan) -> Plan:
    """Adds collectors and erasures to a plan, and makes it commit and copy."""
    plan = with_collectors(plan)
    assert plan.collecting is not None, "it has collectors"
    rng = random.Random(f"with erasures {plan.seed}")
    return replace(
        plan,
        keys=rng.choice([3, 6]),
        put_weight=12,
        get_weight=4,
        commit_weight=rng.choice([3, 6]),
        delete_weight=rng.choice([0, 2]),
        has_repository_turns=False,
        has_namesakes=False,
        think_seconds=rng.choice([0.1, 0.3]),
        collecting=replace(plan.collecting, collectors=1),
        erasing=draw_erasing(plan.seed),
    )


def with_links(plan: Plan) -> Plan:
    """Adds clients that link objects to some plans. Their pause is drawn apart."""
    rng = random.Random(f"links {plan.seed}")
    pause = rng.choice([0.2, 0.6])
    return replace(plan, link_seconds=pause if plan.seed % 8 in _LINKED else 0.0)


def with_branch_turns(plan: Plan) -> Plan:
    """Makes a branch of some plans be deleted and created again, also at old commits (`Admin`)."""
    has_turns = plan.has_branch_turns or plan.seed % 8 in _TURNED
    return replace(plan, has_branch_turns=has_turns)


_ADDED: Mapping[Mode, Callable[[Plan], Plan]] = {
    Mode.COMPACT: with_compactors,
    Mode.COLLECT: lambda plan: with_stray_clocks(
        with_branch_turns(with_links(with_collectors(plan)))
    ),
    Mode.ONLINE: with_online,
    Mode.EXPIRE: with_expiry,
    Mode.ERASE: lambda plan: with_links(with_erasures(plan)),
    Mode.DELETES: with_deleters,
    Mode.VIEWS: with_views,
    Mode.SESSIONS: with_sessions,
}


def _draw(seed: int) -> Plan:
    """Draws a plan without compactors."""
    rng = random.Random(f"plan {seed}")
    kind = _KINDS.get(seed % 16) or _MOVE_KINDS.get(seed % 32)
    if seed % 32 == _TOMBSTONES:
        kind = narrow.tombstones
    if kind is not None:
        return kind(_race(seed, rng), rng)
    plan = _race(seed, rng) if seed % 2 else _mixed(seed, rng)
    plan = replace(plan, has_leaps=seed % 32 != _WITHOUT_LEAPS)
    return _with_moves(plan, rng) if seed % 32 in _WITH_MOVES else plan


def _with_moves(plan: Plan, rng: random.Random) -> Plan:
    """Adds a second branch, merges, and in some plans cherry-picks, reverts, resets and hard moves."""
    return replace(
        plan,
        merge_weight=rng.choice([2, 4]),
        pick_weight=rng.choice([0, 1, 2]),
        reset_weight=rng.choice([0, 0, 1]),
        move_weight=rng.choice([0, 0, 1]),
        part_weight=rng.choice([0, 1, 1]),
        has_side=True,
    )


def _race(seed: int, rng: random.Random) -> Plan:
    """No faults; one or two kinds of hops sometimes take longer than the drop delay, the others are quick."""
    return Plan(
        seed=seed,
        store=rng.choice(["sqlite", "cassandra"]),
        replicas=rng.choice([1, 2]),
        gateways=2,
        clients=rng.choice([3, 4]),
        operations=40,
        keys=rng.choice([2, 6, 6, 14]),
        drop_delay_seconds=0.2,
        cache_seconds=rng.choice([0.05, 30.0]),
        skew_seconds=0.0,
        crash_seconds=0.0,
        hang_up_seconds=60.0,
        claim_seconds=rng.choice([2.0, 20.0]),
        away_seconds=rng.choice([0.0, 0.0, 0.0, 3.0]),
        think_seconds=rng.choice([0.1, 0.3]),
        quiet_rate=rng.choice([0.0, 0.1]),
        page_rows=rng.choice([1, 1000]),
        rows_mean=1,
        put_weight=6,
        get_weight=6,
        commit_weight=rng.choice([2, 4]),
        delete_weight=2,
        scratch_weight=6,
        upload_weight=rng.choice([1, 3]),
        tag_weight=rng.choice([0, 1]),
        difference_weight=rng.choice([0, 1]),
        has_branch_turns=rng.random() < 0.25,
        has_repository_turns=rng.random() < 0.1,
        has_namesakes=rng.random() < 0.2,
        profile=FaultProfile(
            hop_seconds=0.001,
            slow_seconds=rng.choice([0.1, 0.9, 1.5]),
            slow_what=frozenset(rng.sample(HOPS, rng.choice([1, 2, 2]))),
            linger_rate=rng.choice([0.0, 1.0]),
            pause_rate=rng.choice([0.0, 0.0, 0.001]),
            pause_seconds=rng.choice([1.0, 5.0]),
        ),
        conditional_weight=rng.choice([0, 4]),
    )


def _mixed(seed: int, rng: random.Random) -> Plan:
    """Any combination of faults."""
    store = rng.choice(["sqlite", "cassandra"])
    delay = rng.choice([0.2, 0.5, 1.0])
    faults = rng.random() < 0.75
    skew = rng.choice([0.0, 0.0, 0.0, 0.05, 0.5])
    profile = FaultProfile(
        hop_seconds=rng.choice([0.001, 0.005, 0.02]),
        slow_rate=rng.choice([0.0, 0.0, 0.01, 0.05]),
        slow_seconds=rng.choice([0.3, 2 * delay + 0.2, 3 * (delay + 2 * skew)]),
        slow_what=frozenset(rng.sample(HOPS, rng.choice([0, 1, 2, 2, 3]))),
        refused_rate=rng.choice([0.0, 0.002, 0.02]) if faults else 0.0,
        lost_rate=rng.choice([0.0, 0.005, 0.03]) if faults else 0.0,
        late_rate=rng.choice([0.0, 0.02, 0.1]) if faults else 0.0,
        queued_rate=rng.choice([0.0, 0.02, 0.05]) if faults else 0.0,
        queue_seconds=rng.choice([0.3, 2.0, 6.0]),
        raised_rate=rng.choice([0.0, 0.0, 0.005, 0.02]) if faults else 0.0,
        linger_rate=rng.choice([0.0, 0.5, 1.0]),
        pause_rate=rng.choice([0.0, 0.0, 0.0005, 0.002]),
        pause_seconds=rng.choice([2 * delay + 0.2, 10.0, 30.0]),
        down_rate=rng.choice([0.0, 0.5]) if faults else 0.0,
    )
    return Plan(
        seed=seed,
        store=store,
        replicas=rng.choice([1, 2, 2, 3]),
        gateways=rng.choice([1, 2, 3]),
        clients=rng.choice([3, 4, 5]),
        operations=rng.choice([30, 50, 70]),
        keys=rng.choice([1, 2, 3, 6, 6, 28]),
        drop_delay_seconds=delay,
        cache_seconds=rng.choice([0.05, 2.0, 30.0, 30.0]),
        skew_seconds=skew,
        crash_seconds=rng.choice([0.0, 3.0, 10.0]) if faults else 0.0,
        hang_up_seconds=rng.choice([1.0, 10.0, 30.0, 30.0]),
        claim_seconds=rng.choice([2.0, 5.0, 20.0]),
        away_seconds=rng.choice([0.0, 0.0, 0.0, 3.0]) if faults else 0.0,
        think_seconds=rng.choice([0.02, 0.1, 0.1, 0.3]),
        quiet_rate=rng.choice([0.0, 0.1]),
        page_rows=rng.choice([1, 2, 1000]),
        rows_mean=rng.choice([1, 2, 100]),
        put_weight=6,
        get_weight=6,
        commit_weight=rng.choice([1, 2, 4]),
        delete_weight=rng.choice([1, 3, 6]),
        scratch_weight=rng.choice([0, 2]),
        upload_weight=rng.choice([0, 1, 3]),
        tag_weight=rng.choice([0, 0, 1]),
        difference_weight=rng.choice([0, 1, 2]),
        has_branch_turns=rng.random() < 0.4,
        has_repository_turns=rng.random() < 0.25,
        has_namesakes=rng.random() < 0.15,
        profile=profile,
        conditional_weight=rng.choice([0, 2, 6]),
    )
