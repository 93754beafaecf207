"""The promises hold while commits expire (docs/design/retention.md): runs of `python -m tests.sim --expire`."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.sim.admins import AT_OLD_COMMITS, RESTORED
from tests.sim.run import run_seed
from tests.support.faults.modes import Mode

pytestmark = pytest.mark.timeout(600)

_SEEDS = range(6)


def test_no_promise_is_broken_while_commits_expire() -> None:
    """And commits do expire, and lose their objects; and branches begin at old ones, or are restored."""
    counts: Counter[str] = Counter()
    for seed in _SEEDS:
        run = run_seed(seed, mode=Mode.EXPIRE)
        found = [*map(str, run.violations)]
        assert not found, f"make sim SEED={seed} ARGS=--expire\n" + "\n".join(found)
        counts += run.report.statistics
    assert counts["expiry: commits"] > len(_SEEDS), counts
    assert counts["expiry: commits without objects"] > len(_SEEDS), counts
    assert counts[AT_OLD_COMMITS] > len(_SEEDS), counts
    assert counts[RESTORED] > len(_SEEDS), counts
