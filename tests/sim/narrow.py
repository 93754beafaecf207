"""Narrow plans: few keys, one branch, and only those hops slow that make certain requests collide.

A wide plan plays all operations on many keys; two requests rarely meet there on one key in a given order. Each
narrow plan makes one kind of collision frequent. It changes a plan that was drawn before, so that store,
replicas and the rest vary as in the other plans.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.support.sim.faults import FaultProfile

if TYPE_CHECKING:
    from tests.sim.plan import Plan

__all__ = [
    "Narrowing",
    "clocks",
    "collections",
    "contention",
    "hasty_drops",
    "late_conditions",
    "late_deletes",
    "late_rechecks",
    "late_scans",
    "lost_answers",
    "merges",
    "parts",
    "queues",
    "resets",
    "tombstones",
    "uploads",
]

Narrowing = Callable[["Plan", random.Random], "Plan"]


def _narrow(plan: Plan, rng: random.Random) -> Plan:
    """Restricts a plan to one branch and one or two keys, without operations that a narrow plan does not need."""
    return replace(
        plan,
        keys=rng.choice([1, 1, 2]),
        clients=4,
        operations=40,
        hang_up_seconds=60.0,
        crash_seconds=0.0,
        skew_seconds=0.0,
        away_seconds=0.0,
        scratch_weight=0,
        tag_weight=0,
        upload_weight=0,
        has_branch_turns=False,
        has_repository_turns=False,
        has_namesakes=False,
        is_narrow=True,
    )


def uploads(plan: Plan, rng: random.Random) -> Plan:
    """Completions collide with each other and with puts of the same few keys.

    Claims live about as long as a slow write takes; some processes pause for longer. Every other plan has no
    operation that seals a token: then only a second effect explains an object that comes back.
    """
    is_sealed = rng.random() < 0.4
    also = ["read record", "write rows"] if is_sealed else ["read record"]
    profile = FaultProfile(
        hop_seconds=0.001,
        slow_seconds=rng.choice([0.9, 1.5]),
        slow_what=frozenset({"change record", rng.choice(also)}),
        pause_rate=rng.choice([0.0, 0.002]) if is_sealed else 0.0,
        pause_seconds=4.0,
    )
    return replace(
        _narrow(plan, rng),
        store=rng.choice(["sqlite", "sqlite", "cassandra"]),
        operations=60,
        replicas=2,
        gateways=rng.choice([2, 3]),
        claim_seconds=rng.choice([1.0, 3.0]) if is_sealed else 3.0,
        put_weight=6,
        get_weight=30,
        upload_weight=8,
        commit_weight=3 if is_sealed else 1,
        conditional_weight=rng.choice([0, 4]) if is_sealed else 0,
        think_seconds=0.1,
        profile=profile,
    )


def collections(plan: Plan, rng: random.Random) -> Plan:
    """Collections meet writes, builds and readers; processes pause for longer than a mark and its sweep take. In half
    of these plans few objects change between many builds, most of which fail half-way: so later builds find the ranges
    of earlier ones. (`plan.collecting` refuses the rows of their commits.)"""
    is_steady = plan.seed % 2 == 0
    has_side = rng.random() < 0.3 and not is_steady
    profile = FaultProfile(
        hop_seconds=0.001,
        slow_seconds=rng.choice([0.3, 0.8]),
        slow_what=frozenset(rng.sample(["write rows", "change record", "scan", "block"], 1)),
        lost_rate=rng.choice([0.0, 0.02]),
        pause_rate=rng.choice([0.0, 0.001, 0.003]),
        pause_seconds=rng.choice([1.0, 3.0]),
    )
    return replace(
        _narrow(plan, rng),
        replicas=2,
        gateways=1,
        keys=6 if is_steady else rng.choice([2, 3]),
        clients=3,
        operations=40,
        crash_seconds=0.0 if is_steady else rng.choice([0.0, 1.5]),
        away_seconds=0.0 if is_steady else rng.choice([0.0, 0.0, 3.0]),
        drop_delay_seconds=0.5,
        claim_seconds=2.0,
        hang_up_seconds=10.0,
        think_seconds=0.3 if is_steady else 0.15,
        rows_mean=1,
        page_rows=1000,
        put_weight=4 if is_steady else 12,
        get_weight=4,
        delete_weight=0 if is_steady else 1,
        commit_weight=8 if is_steady else 3,
        conditional_weight=0 if is_steady else rng.choice([0, 2]),
        upload_weight=0 if is_steady else rng.choice([0, 2]),
        reset_weight=0 if is_steady else rng.choice([0, 1]),
        part_weight=0 if is_steady else rng.choice([0, 1]),
        merge_weight=2 if has_side else 0,
        tag_weight=0,
        difference_weight=0,
        compact_seconds=0.0 if is_steady else rng.choice([0.0, 0.3]),
        has_side=has_side,
        profile=profile,
    )


def queues(plan: Plan, rng: random.Random) -> Plan:
    """Cassandra's coordinators queue requests during concurrent commits; there are no other faults."""
    profile = FaultProfile(
        hop_seconds=0.005,
        queued_rate=rng.choice([0.05, 0.1]),
        queue_seconds=rng.choice([0.3, 2.0, 6.0]),
        linger_rate=plan.profile.linger_rate,
    )
    return replace(
        _narrow(plan, rng),
        store="cassandra",
        replicas=rng.choice([2, 3]),
        keys=rng.choice([1, 6]),
        commit_weight=10,
        hang_up_seconds=30.0,
        profile=profile,
    )


def late_deletes(plan: Plan, rng: random.Random) -> Plan:
    """Deletes read layers for longer than a dropped token lives. In every other plan their tombstones land after
    the scan of a commit. Some keys are created and deleted between two commits."""
    also = {"write rows"} if plan.seed % 32 >= 16 else set[str]()
    plan = _late_layers(plan, rng, also)
    return replace(plan, put_weight=6, delete_weight=4, scratch_weight=10)


def tombstones(plan: Plan, rng: random.Random) -> Plan:
    """Most objects are deleted, before and after they are committed, so that listings leap over tombstones."""
    slow_what = frozenset({rng.choice(["scan", "read rows", "write rows"])})
    return replace(
        _narrow(plan, rng),
        replicas=2,
        keys=rng.choice([6, 14]),
        operations=60,
        put_weight=6,
        delete_weight=6,
        get_weight=1,
        commit_weight=rng.choice([1, 2]),
        scratch_weight=rng.choice([0, 4]),
        conditional_weight=rng.choice([0, 2]),
        compact_seconds=rng.choice([0.0, 0.3]),
        has_leaps=True,
        profile=FaultProfile(hop_seconds=0.001, slow_seconds=0.1, slow_what=slow_what),
    )


def late_conditions(plan: Plan, rng: random.Random) -> Plan:
    """Conditional writes read layers for longer than a dropped token lives."""
    plan = _late_layers(plan, rng, set())
    return replace(plan, put_weight=2, delete_weight=10, conditional_weight=10)


def _late_layers(plan: Plan, rng: random.Random, also: AbstractSet[str]) -> Plan:
    slow_what = frozenset({"read rows", "block", *also})
    return replace(
        _narrow(plan, rng),
        replicas=2,
        drop_delay_seconds=0.2,
        cache_seconds=30.0,
        commit_weight=6,
        conditional_weight=0,
        profile=FaultProfile(hop_seconds=0.001, slow_seconds=3.0, slow_what=slow_what),
    )


def late_scans(plan: Plan, rng: random.Random) -> Plan:
    """Commits scan for longer than the tokens live that other commits removed."""
    profile = FaultProfile(hop_seconds=0.001, slow_seconds=3.0, slow_what=frozenset({"scan"}))
    return replace(
        _narrow(plan, rng),
        replicas=3,
        drop_delay_seconds=0.2,
        commit_weight=10,
        difference_weight=6,
        conditional_weight=0,
        profile=profile,
    )


def late_rechecks(plan: Plan, rng: random.Random) -> Plan:
    """Reads of records take longer than a commit by another replica."""
    slow_what = frozenset({"read record"})
    return replace(
        _narrow(plan, rng),
        keys=6,
        clients=8,
        operations=24,
        replicas=2,
        cache_seconds=30.0,
        think_seconds=0.05,
        put_weight=10,
        get_weight=10,
        commit_weight=6,
        conditional_weight=0,
        profile=FaultProfile(hop_seconds=0.001, slow_seconds=0.9, slow_what=slow_what),
    )


def hasty_drops(plan: Plan, rng: random.Random) -> Plan:
    """Layers are read slowly, but within the drop delay, so only a token that is dropped too early is missing."""
    return replace(
        _narrow(plan, rng),
        replicas=rng.choice([1, 2]),
        drop_delay_seconds=1.0,
        cache_seconds=30.0,
        commit_weight=6,
        conditional_weight=0,
        profile=FaultProfile(
            hop_seconds=0.001, slow_seconds=0.9, slow_what=frozenset({"read rows"})
        ),
    )


def contention(plan: Plan, rng: random.Random) -> Plan:
    """Conditional writes of one key collide with each other, with deletes and with commits."""
    profile = FaultProfile(
        hop_seconds=0.001,
        slow_seconds=1.5,
        slow_what=frozenset({"change record", "block"}),
    )
    return replace(
        _narrow(plan, rng),
        keys=rng.choice([1, 3, 3]),
        clients=7,
        operations=24,
        replicas=rng.choice([1, 2]),
        cache_seconds=30.0,
        think_seconds=0.1,
        put_weight=2,
        commit_weight=10,
        delete_weight=3,
        conditional_weight=20,
        profile=profile,
    )


def clocks(plan: Plan, rng: random.Random) -> Plan:
    """Replicas on Cassandra with different clocks write the same few plain rows."""
    return replace(
        _narrow(plan, rng),
        store="cassandra",
        replicas=3,
        skew_seconds=0.5,
        think_seconds=0.1,
        commit_weight=1,
        conditional_weight=0,
        profile=FaultProfile(hop_seconds=0.005, down_rate=rng.choice([0.0, 0.5])),
    )


def lost_answers(plan: Plan, rng: random.Random) -> Plan:
    """Answers to changes of a record are lost, and the reads that settle them are refused."""
    profile = FaultProfile(
        hop_seconds=0.005,
        lost_rate=0.1,
        refused_rate=rng.choice([0.02, 0.05]),
        late_rate=rng.choice([0.0, 0.05]),
        queued_rate=rng.choice([0.0, 0.05]),
        queue_seconds=0.3,
    )
    return replace(
        _narrow(plan, rng),
        replicas=2,
        commit_weight=8,
        conditional_weight=rng.choice([0, 2]),
        profile=profile,
    )


def merges(plan: Plan, rng: random.Random) -> Plan:
    """Merges of two branches into each other collide with conditional writes, deletes and commits of a few keys.

    The guards are detected only if a conditional write verifies the record between the seal and the last step of a
    merge, its row lands after that step, and its key is read between that step and the row.
    """
    profile = FaultProfile(
        hop_seconds=0.001,
        slow_seconds=rng.choice([0.5, 1.5]),
        slow_what=frozenset({"change record", "block"}),
        lost_rate=rng.choice([0.0, 0.0, 0.02]),
        pause_rate=rng.choice([0.0, 0.0, 0.001]),
        pause_seconds=4.0,
    )
    return replace(
        _narrow(plan, rng),
        keys=rng.choice([1, 1, 2]),
        clients=8,
        operations=24,
        replicas=rng.choice([1, 2]),
        cache_seconds=30.0,
        think_seconds=0.2,
        put_weight=1,
        get_weight=20,
        commit_weight=3,
        delete_weight=5,
        conditional_weight=16,
        merge_weight=14,
        pick_weight=rng.choice([0, 3]),
        has_side=True,
        profile=profile,
    )


def resets(plan: Plan, rng: random.Random) -> Plan:
    """Resets and hard moves collide with commits, merges and writes of a few keys."""
    profile = FaultProfile(
        hop_seconds=0.001,
        slow_seconds=rng.choice([0.5, 1.5]),
        slow_what=frozenset({"change record", rng.choice(["block", "scan"])}),
        lost_rate=rng.choice([0.0, 0.0, 0.02]),
    )
    return replace(
        _narrow(plan, rng),
        clients=6,
        operations=24,
        replicas=rng.choice([1, 2]),
        cache_seconds=30.0,
        think_seconds=0.2,
        put_weight=6,
        get_weight=8,
        commit_weight=6,
        delete_weight=1,
        conditional_weight=rng.choice([0, 4]),
        merge_weight=rng.choice([0, 3]),
        pick_weight=rng.choice([0, 2]),
        reset_weight=4,
        move_weight=6,
        has_side=True,
        profile=profile,
    )


def parts(plan: Plan, rng: random.Random) -> Plan:
    """Resets of prefixes and single objects collide with each other, commits, merges and writes of a few keys.

    Every other plan is about conditional writes, as `merges` is: one of them verifies a delete between the seal of a
    reset and its last step, and the key is read between that step and the row. In the others, few commits come between
    two resets, so that the second one finds changes that the first one has folded.
    """
    profile = FaultProfile(
        hop_seconds=0.001,
        slow_seconds=rng.choice([0.5, 1.5]),
        slow_what=frozenset({"change record", rng.choice(["block", "block", "scan"])}),
        lost_rate=rng.choice([0.0, 0.0, 0.02]),
    )
    is_conditional = rng.random() < 0.5
    narrow = replace(
        _narrow(plan, rng),
        replicas=rng.choice([1, 2]),
        cache_seconds=30.0,
        think_seconds=0.2,
        clients=6,
        operations=24,
        merge_weight=rng.choice([0, 1]),
        part_weight=6,
        has_side=True,
        profile=profile,
    )
    if is_conditional:
        return replace(
            narrow,
            keys=rng.choice([1, 1, 2]),
            put_weight=1,
            get_weight=20,
            commit_weight=4,
            delete_weight=6,
            conditional_weight=10,
        )
    return replace(
        narrow,
        keys=rng.choice([3, 6]),
        put_weight=8,
        get_weight=10,
        commit_weight=rng.choice([1, 3]),
        delete_weight=3,
        conditional_weight=0,
        reset_weight=rng.choice([0, 1]),
    )
