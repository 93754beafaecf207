from __future__ import annotations

import os
import uuid

from tests.support.clock import ManualClock

from tarn.rpc.process.system import SystemClock, SystemIds


def test_uuid7_has_version_variant_and_the_clocks_milliseconds() -> None:
    clock = SystemClock()
    before = clock.now_us() // 1000
    made = uuid.UUID(bytes=SystemIds(clock).uuid7())
    after = clock.now_us() // 1000

    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert before <= int.from_bytes(made.bytes[:6], "big") <= after


def test_uuid7_grows_while_the_clock_stands_still_or_goes_back() -> None:
    class Still(ManualClock):
        def now_us(self) -> int:
            return next(times)

    times = iter([1_700_000_000_000_000] * 5000 + [1_600_000_000_000_000] * 5000)
    ids = SystemIds(Still())
    made = [ids.uuid7() for _ in range(10_000)]

    assert made == sorted(set(made))


def test_nonces_differ() -> None:
    ids = SystemIds(SystemClock())
    nonces = {ids.nonce() for _ in range(2000)}

    assert len(nonces) == 2000
    assert {len(nonce) for nonce in nonces} == {16}


def test_forked_process_draws_other_ids() -> None:
    ids = SystemIds(SystemClock())
    ids.nonce()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, ids.nonce())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    theirs = os.read(read, 16)
    os.close(read)

    assert theirs != ids.nonce()


async def test_sleep_lasts_as_long_as_monotonic_says() -> None:
    clock = SystemClock()
    start = clock.monotonic()
    await clock.sleep(0.01)
    assert clock.monotonic() - start >= 0.0099
