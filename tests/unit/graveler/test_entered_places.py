"""What a gate has found for one path holds for the other paths of its branch or ref: it says what a gate without a
memory says, at every moment."""

import random
from collections.abc import Sequence
from typing import cast

import pytest
from lake import MAIN, Replicas, create_repository

from tarn.core.access.policy import Grant, Policy, Statement, compile_policy
from tarn.core.change_kind import ChangeKind
from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.core.ids import RepositoryId, UserId
from tarn.core.rules import Protection, Rules, Settings
from tarn.gate.access import Access
from tarn.gate.permits import AccessGate, RepositoryPermit
from tarn.kv.records import Repository
from tarn.rpc.rules import Rule, rules_of
from tarn.rpc.wire.call import Call
from tarn.telemetry.audit.note import NOTE, AuditNote
from tarn_graveler.assembly import Graveler
from tarn_graveler.handlers.requests import RepositoryRules
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

_SERVICE = rules_of(pb.DESCRIPTOR.services_by_name["EntryService"])
_GRANT_SECONDS = 7.0
_STATEMENTS = (
    (Statement(True, ("*",), ("*",)),),
    (Statement(True, ("*",), ("repository/lake/*",)),),
    (Statement(True, ("ReadRepo",), ("repository/*",)),),
    (Statement(True, ("WriteRepo",), ("repository/*",)),),
    (
        Statement(True, ("*",), ("repository/*",)),
        Statement(False, ("*",), ("repository/lake/branch/main/object/a*",)),
    ),
    (
        Statement(
            True, ("*",), ("repository/lake/branch/main/object/b", "repository/lake/ref/main*")
        ),
    ),
)
_POLICIES = tuple(map(compile_policy, _STATEMENTS))


class _Grants:
    """Grants by token, each for seven seconds, as `Access` keeps them."""

    def __init__(self, clock: Clock, rng: random.Random, policies: Sequence[Policy]) -> None:
        self._clock, self._rng, self._policies = clock, rng, policies
        self._grants: dict[str, tuple[Grant, float]] = {}

    def grant_cached(self, token: str) -> Grant | None:
        grant, end = self._grants.get(token, (None, 0.0))
        return grant if end > self._clock.monotonic() else None

    def grant_end(self, token: str) -> float:
        return self._grants[token][1]

    async def grant(self, call: Call) -> Grant:
        policy = self._rng.choice(self._policies)
        grant = Grant(UserId(call.caller_token), policy, call.caller_token, 7000)
        self._grants[call.caller_token] = grant, self._clock.monotonic() + _GRANT_SECONDS
        return grant


class _CountedRules(RepositoryRules):
    """Counts what a gate asks."""

    asked = 0

    async def enter(self, rule: Rule, request: object, grant: Grant) -> Repository:
        self.asked += 1
        return await super().enter(rule, request, grant)  # type: ignore[arg-type]  # a message


def _request(rng: random.Random) -> tuple[Rule, pb.Lookup | pb.Stage]:
    repository, ref = (
        rng.choice(("lake", "lake", "pond", "none")),
        rng.choice(("main", "dev", "x/y")),
    )
    path = rng.choice(("a", "a1", "b", "c"))
    if rng.random() < 0.4:
        return _SERVICE["lookup"], pb.Lookup(repository_id=repository, ref=ref, path=path)
    stage = pb.Stage(repository_id=repository, branch_id=ref, path=path)
    if rng.random() < 0.2:
        stage.condition.if_match = "*"
    return _SERVICE["stage"], stage


async def _said(gate: AccessGate, rule: Rule, request: pb.Lookup | pb.Stage, call: Call) -> object:
    try:
        permit = await gate.permit(rule, request, call)
    except TarnError as error:
        return error.reason
    assert isinstance(permit, RepositoryPermit)
    return permit.repository, permit.grant


async def _change(graveler: Graveler, rng: random.Random, protected: str) -> None:
    repository = await graveler.repositories.read(RepositoryId("lake"))
    if rng.random() < 0.3:
        marked = await graveler.repositories.mark_deleted(repository)
        await graveler.repositories.remove(marked)
        namespace = f"local://lake-{rng.random()}"
        again = await graveler.repositories.reserve(RepositoryId("lake"), namespace, MAIN)
        await graveler.repositories.publish(again)
        return
    rule = Protection(protected, frozenset({ChangeKind.WRITE}))
    rules = Rules(is_read_only=rng.random() < 0.2, protections=(rule,) if protected else ())
    await graveler.settings.change(repository, "", lambda _: Settings(rules))


@pytest.mark.parametrize("seed", range(12))
async def test_a_gate_that_remembers_says_what_one_says_that_does_not(
    replicas: Replicas, seed: int
) -> None:
    rng = random.Random(seed)
    async with replicas.replica() as graveler, replicas.replica() as other:
        for name in ("lake", "pond"):
            await create_repository(graveler, name)
        access = cast("Access", _Grants(replicas.clock, random.Random(seed), _POLICIES))
        parts = graveler.repositories, graveler.settings, graveler.bucket_views
        rules = _CountedRules(*parts)
        remembers = AccessGate(access, rules, graveler.clock)
        plain = AccessGate(access, RepositoryRules(*parts))
        count = 400
        for _ in range(count):
            if rng.random() < 0.03:
                # By this replica, or by one whose changes this one sees late.
                protected = rng.choice(("", "main", "d*"))
                await _change(rng.choice((graveler, other)), rng, protected)
            if rng.random() < 0.1:
                replicas.clock.advance(rng.random() * 3)
            call = Call("r", rng.choice(("ann", "bob")), 1e9)
            rule, request = _request(rng)
            found = await _said(remembers, rule, request, call)
            assert found == await _said(plain, rule, request, call), (rule.name, request)
        assert rules.asked < count / 2


async def test_a_note_for_the_audit_log_names_each_path(replicas: Replicas) -> None:
    async with replicas.replica() as graveler:
        await create_repository(graveler)
        access = cast("Access", _Grants(replicas.clock, random.Random(0), _POLICIES[:1]))
        parts = graveler.repositories, graveler.settings, graveler.bucket_views
        gate = AccessGate(access, RepositoryRules(*parts), graveler.clock)
        rule = _SERVICE["lookup"]
        outside = NOTE.set(AuditNote())
        try:
            for path in ("a", "b"):
                note = AuditNote()
                NOTE.set(note)
                request = pb.Lookup(repository_id="lake", ref="main", path=path)
                await gate.permit(rule, request, Call("r", "ann", 1e9))
                assert note.resource == f"repository/lake/ref/main/object/{path}"
        finally:
            NOTE.reset(outside)
