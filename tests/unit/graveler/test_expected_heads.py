"""Merges, reverts and cherry-picks that name the head which they expect, such as that of a preview."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from graveler_service import Service, reason_of
from lake import Running, reached
from lake_tasks import MAIN_KEY, head

from tarn.core.errors import Reason

CHANGES: dict[str, Callable[..., Awaitable[object]]] = {
    "merge": lambda lake, **more: lake.graveler.merge(lake.admin, "lake", "main", "side", **more),
    "revert": lambda lake, **more: lake.graveler.revert(lake.admin, "lake", "main", "main", **more),
    "range": lambda lake, **more: lake.graveler.revert_range(
        lake.admin, "lake", "main", "main~1", "main", **more
    ),
    "pick": lambda lake, **more: lake.graveler.cherry_pick(
        lake.admin, "lake", "main", "side", **more
    ),
}


@pytest.fixture
async def lake(service: Service) -> Service:
    """`main` and `side` have a commit each since `side` was made."""
    await service.graveler.create_branch(service.admin, "lake", "side", "main")
    for branch in ("side", "main"):
        await service.put(branch, 1, branch)
        await service.graveler.create_commit(service.admin, "lake", branch, branch)
    return service


@pytest.fixture(params=CHANGES)
def change(request: pytest.FixtureRequest) -> Callable[..., Awaitable[object]]:
    return CHANGES[request.param]


async def test_the_expected_head_is_changed_and_no_other_one(lake: Service, change: Any) -> None:
    before = await head(lake)
    wrong = (await lake.graveler.get_branch(lake.admin, "lake", "side")).commit_id
    assert await reason_of(change(lake, expected_commit_id=wrong)) is Reason.REF_MOVED
    no_id = change(lake, expected_commit_id="main")
    assert await reason_of(no_id) is Reason.INVALID_ARGUMENT
    assert await head(lake) == before
    await change(lake, expected_commit_id=before)
    page = await lake.graveler.list_commits(lake.admin, "lake", "main", first_parent=True)
    assert page.commits[1].commit_id == before
    # So a repetition after a lost answer changes nothing.
    assert await reason_of(change(lake, expected_commit_id=before)) is Reason.REF_MOVED


async def test_a_commit_that_overtakes_the_change_is_not_built_upon(
    lake: Service, running: Running, change: Any
) -> None:
    before = await head(lake)
    gate = lake.replicas.kv.hold("set_if", MAIN_KEY)
    changing = running.start(reason_of(change(lake, expected_commit_id=before)))
    await reached(gate)
    await lake.graveler.create_commit(lake.admin, "lake", "main", "faster", allow_empty=True)
    overtaking = await head(lake)
    gate.open()
    assert await changing is Reason.REF_MOVED
    assert await head(lake) == overtaking
