"""Reports of progress reach the listener of the task that does the work, and no other."""

import asyncio

from tarn.aio.progress import listening, report


async def test_a_listener_gets_the_reports_of_its_block_and_of_the_tasks_started_there() -> None:
    found: list[tuple[int, int]] = []

    async def work() -> None:
        report(2, 9)

    report(0, 9)  # without a listener
    with listening(lambda done, total: found.append((done, total))):
        report(1, 9)
        async with asyncio.TaskGroup() as group:
            group.create_task(work())
    report(3, 9)
    assert found == [(1, 9), (2, 9)]
