"""Session keys keep their promise beside faults (docs/design/session-keys.md); without a guard they do not.

The runs are those of `python -m tests.sim --sessions`. Each recorded seed of a guard is played with all guards, too.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.sim.jobs import broken_without, guard_seeds
from tests.sim.run import run_seed
from tests.sim.session_guards import SESSION_GUARDS
from tests.sim.sessions import Period, Right, SessionLife, Sessions, Use
from tests.support.check.history import History, OpKind, Outcome
from tests.support.faults.guards import Guard
from tests.support.faults.modes import Mode

from tarn.core.access.policy import Binding
from tarn.core.errors import Reason

pytestmark = pytest.mark.timeout(600)

_SEEDS = sorted(set().union(*(guard_seeds()[guard.name] for guard in SESSION_GUARDS)))
_LEAST = {
    "issued": 5,
    "ended": 3,
    "renewed": 1,
    "changes of rights": 3,
    "a holder: admitted": 10,
    "a holder: ok": 10,
    "a holder: ACCESS_DENIED": 1,
    "a holder: SESSION_EXPIRED": 1,
    "a holder: SESSION_TOKEN_INVALID": 2,
    "a stranger: SESSION_TOKEN_INVALID": 2,
    "a stranger: CREDENTIAL_NOT_FOUND": 1,
}


def test_no_promise_is_broken_with_session_keys() -> None:
    """And keys do end, and users lose rights, while they are in use."""
    counts: Counter[str] = Counter()
    for seed in _SEEDS:
        run = run_seed(seed, mode=Mode.SESSIONS)
        found = [*map(str, run.violations)]
        assert not found, f"make sim SEED={seed} ARGS=--sessions\n" + "\n".join(found)
        counts += run.report.statistics
    for what, least in _LEAST.items():
        assert counts[f"sessions: {what}"] >= least * len(_SEEDS), (what, counts)


@pytest.mark.parametrize("guard", SESSION_GUARDS, ids=lambda guard: guard.name)
def test_a_missing_guard_of_session_keys_is_detected(guard: Guard) -> None:
    seeds = guard_seeds()[guard.name]
    assert any(broken_without(guard, seed) for seed in seeds), (
        f"without {guard.name}, seeds {seeds} break none of {guard.protects}; "
        f"`make mutate-guards ARGS='--guard {guard.name}'` searches again"
    )


def a_key(*, until: float = 100.0, is_read_only: bool = False) -> SessionLife:
    binding = Binding("sales", "lake", "side")
    return SessionLife("id", "secret", "token", binding, is_read_only, [(0.0, until)], until)


def judged(
    sessions: Sessions,
    life: SessionLife,
    begin: float,
    reason: Reason | None = None,
    *,
    is_stranger: bool = False,
    is_write: bool = False,
) -> list[str]:
    sessions.uses = [Use(life, begin, is_stranger, is_write, [(reason, begin + 0.01)])]
    return sessions.judge()


def test_a_stranger_is_never_admitted() -> None:
    assert judged(Sessions(), a_key(), 1.0, is_stranger=True)
    assert not judged(Sessions(), a_key(), 1.0, Reason.SESSION_TOKEN_INVALID, is_stranger=True)


@pytest.mark.parametrize(("begin", "is_wrong"), [(10.0, False), (11.9, False), (12.1, True)])
def test_a_key_that_was_ended_may_be_used_until_the_bound(begin: float, is_wrong: bool) -> None:
    life = a_key()
    life.ends = [Period(10.0, 11.0)]
    assert bool(judged(Sessions(), life, begin)) is is_wrong


def test_an_end_without_an_answer_ends_nothing_for_sure() -> None:
    life = a_key()
    life.ends = [Period(10.0)]
    assert not judged(Sessions(), life, 50.0)
    assert not judged(Sessions(), life, 50.0, Reason.SESSION_TOKEN_INVALID)
    assert judged(Sessions(), life, 5.0, Reason.SESSION_TOKEN_INVALID)


@pytest.mark.parametrize(("begin", "is_wrong"), [(9.9, False), (10.1, True)])
def test_a_key_that_has_expired_is_refused_at_once(begin: float, is_wrong: bool) -> None:
    assert bool(judged(Sessions(), a_key(until=10.0), begin)) is is_wrong
    assert bool(judged(Sessions(), a_key(until=10.0), begin, Reason.SESSION_EXPIRED)) is (
        not is_wrong
    )


def test_a_renewed_key_has_not_expired() -> None:
    life = a_key(until=10.0)
    life.lasts.append((9.0, 20.0))
    life.lasts_at_most = 20.0
    assert not judged(Sessions(), life, 15.0)
    assert judged(Sessions(), life, 15.0, Reason.SESSION_EXPIRED)


def test_a_user_who_lost_a_right_lacks_it_after_the_bound_until_it_may_be_back() -> None:
    sessions = Sessions(rights=[Right(1.0, 2.0, can_write=False), Right(8.0, 9.0, can_write=True)])
    for begin, is_wrong in ((2.5, False), (3.5, True), (7.5, True), (8.5, False), (12.0, False)):
        found = judged(sessions, a_key(), begin, is_write=True)
        assert bool(found) is is_wrong, begin
        assert not judged(sessions, a_key(), begin), "the right to read stays"
    for begin, is_wrong in ((0.5, True), (1.5, False), (8.5, False), (12.0, True)):
        found = judged(sessions, a_key(), begin, Reason.ACCESS_DENIED, is_write=True)
        assert bool(found) is is_wrong, begin


def test_a_key_that_may_only_read_never_writes() -> None:
    life = a_key(is_read_only=True)
    assert judged(Sessions(), life, 1.0, is_write=True)
    assert not judged(Sessions(), life, 1.0, Reason.ACCESS_DENIED, is_write=True)
    assert judged(Sessions(), life, 1.0, Reason.ACCESS_DENIED)


def test_a_refusal_of_graveler_is_right_if_the_key_may_have_ended() -> None:
    history, sessions, life = History(), Sessions(), a_key()
    life.ends = [Period(10.0, 11.0)]
    for begin, reasons in ((5.0, []), (10.5, [Reason.CALLER_TOKEN_INVALID])):
        op = history.begin("h0", OpKind.GET, "lake/side", "k")
        history.finish(op, Outcome.FAIL)
        op.reason = Reason.CALLER_TOKEN_INVALID
        sessions.uses = [Use(life, begin, False, False, [], [(op, begin + 0.01)])]
        assert sessions.judge() == []
        assert sorted(op.grounds) == reasons
