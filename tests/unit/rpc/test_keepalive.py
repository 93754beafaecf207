"""A quiet connection outlives the pings of its client: the settings of both sides agree."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from tarn.rpc.wire import metadata

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
pytestmark = pytest.mark.asyncio(loop_scope="session")

Options = tuple[tuple[str, int], ...]

MIN_INTERVAL = "grpc.http2.min_ping_interval_without_data_ms"
# gRPC sends no pings faster than one in a second.
PING_SECONDS = 1.0
FASTER = dict(metadata.CHANNEL_OPTIONS)["grpc.keepalive_time_ms"] / (PING_SECONDS * 1000)
SECONDS = 4.5 * PING_SECONDS
STRICT = ("grpc.http2.max_ping_strikes", 1)


def faster(options: Options) -> Options:
    """The same options with all times divided by one number."""
    return tuple(
        (name, int(value / FASTER) if name.endswith("_ms") and "backoff" not in name else value)
        for name, value in options
    )


async def is_kept(server_options: Options) -> bool:
    """Returns whether a connection without calls is the same after some pings."""
    server = grpc.aio.server(options=server_options)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    options = faster(metadata.CHANNEL_OPTIONS)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            await channel.channel_ready()
            ready = grpc.ChannelConnectivity.READY
            async with asyncio.timeout(SECONDS):
                await channel.wait_for_state_change(ready)
            return False
    except TimeoutError:
        return True
    finally:
        await server.stop(None)


async def test_pings_of_a_quiet_client_are_accepted() -> None:
    agreed = (*faster(metadata.SERVER_OPTIONS), STRICT)
    # Without the server's setting, gRPC tolerates a ping in five minutes: this shows that the test can fail.
    default = tuple(each for each in agreed if each[0] != MIN_INTERVAL)
    async with asyncio.TaskGroup() as group:
        with_ours = group.create_task(is_kept(agreed))
        without = group.create_task(is_kept(default))
    assert (with_ours.result(), without.result()) == (True, False)


async def test_other_clients_may_ping_as_often_as_their_libraries_do() -> None:
    """grpc-go and grpc-java ping at most every ten seconds."""
    assert dict(metadata.SERVER_OPTIONS)[MIN_INTERVAL] <= 10_000
    assert dict(metadata.SERVER_OPTIONS)["grpc.keepalive_permit_without_calls"] == 1
