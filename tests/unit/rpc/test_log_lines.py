from __future__ import annotations

import asyncio
import io
import threading

from tarn.rpc.process.log_lines import LogLines


class Stream(io.StringIO):
    """A stream that counts writes."""

    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


def test_lines_of_one_tick_are_one_write() -> None:
    stream = Stream()

    async def tick() -> None:
        lines = LogLines(stream)
        lines.info("a")
        lines.debug("b")
        assert stream.getvalue() == ""
        await asyncio.sleep(0)
        assert stream.getvalue() == "a\nb\n"
        lines.info("c")
        await asyncio.sleep(0)

    asyncio.run(tick())
    assert stream.getvalue() == "a\nb\nc\n"
    assert stream.writes == 2


def test_an_error_goes_out_at_once_behind_what_waits() -> None:
    stream = Stream()

    async def tick() -> None:
        lines = LogLines(stream)
        lines.info("a")
        lines.error("b")
        assert stream.getvalue() == "a\nb\n"

    asyncio.run(tick())


def test_a_thread_without_a_loop_writes_at_once() -> None:
    stream = Stream()
    lines = LogLines(stream)
    lines.info("a")
    assert stream.getvalue() == "a\n"


def test_lines_that_a_dead_loop_left_come_with_the_next() -> None:
    stream = Stream()
    lines = LogLines(stream)

    async def leave() -> None:
        lines.info("a")
        asyncio.get_running_loop().stop()
        await asyncio.sleep(1)

    loop = asyncio.new_event_loop()
    task = loop.create_task(leave())
    loop._run_once()  # type: ignore[attr-defined]  # one tick: what it scheduled never runs
    task.cancel()
    loop.close()

    async def tick() -> None:
        lines.info("b")
        await asyncio.sleep(0)

    asyncio.run(tick())
    assert stream.getvalue() == "a\nb\n"


def test_the_lines_that_wait_are_bounded() -> None:
    stream = Stream()

    async def tick() -> None:
        lines = LogLines(stream)
        for _ in range(256):
            lines.info("a")
        assert stream.writes == 1

    asyncio.run(tick())


def test_no_line_is_lost_while_other_threads_write_theirs() -> None:
    """Lines are added without a lock; those of a loop wait for its tick."""
    stream = Stream()
    lines = LogLines(stream)

    def of_thread() -> None:
        for number in range(2000):
            lines.error(f"thread {number}")

    async def of_loop() -> None:
        for number in range(2000):
            lines.info(f"loop {number}")
            if number % 7 == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(0)

    thread = threading.Thread(target=of_thread)
    thread.start()
    asyncio.run(of_loop())
    thread.join()
    written = stream.getvalue().splitlines()
    for name in ("thread", "loop"):
        assert [each for each in written if each.startswith(name)] == [
            f"{name} {number}" for number in range(2000)
        ]
