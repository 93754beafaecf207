"""The load client with a small server of the test."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from bench.load.client import Load, exchange
from bench.load.signing import Request

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Answering = Callable[[bytes, int], bytes]


class Server:
    """Answers each request with the result of a function of its bytes and number; b"" closes the connection."""

    def __init__(self, answer: Answering) -> None:
        self.seen: list[bytes] = []
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._talk, args=(connection,)))
            self._threads[-1].start()

    def _talk(self, connection: socket.socket) -> None:
        data = b""
        while True:
            while b"\r\n\r\n" not in data or len(data.split(b"\r\n\r\n", 1)[1]) < length(data):
                try:
                    more = connection.recv(1 << 20)
                except OSError:
                    return
                if not more:
                    return
                data += more
            self.seen.append(data)
            answer = self._answer(data, len(self.seen))
            data = b""
            if not answer:
                connection.close()
                return
            connection.sendall(answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            with suppress(OSError):  # it may be closed already; otherwise this wakes its thread
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        for thread in self._threads:
            thread.join(5)


def length(data: bytes) -> int:
    """Returns the content length of a head."""
    found = data.lower().partition(b"content-length: ")[2]
    return int(found.split(b"\r\n")[0]) if found else 0


@contextmanager
def serving(answer: Answering) -> Iterator[Server]:
    server = Server(answer)
    try:
        yield server
    finally:
        server.close()


def get(number: int) -> Request:
    return Request(b"GET /%d HTTP/1.1\r\n\r\n" % number)


def paths(server: Server) -> list[bytes]:
    return sorted(data.split()[1] for data in server.seen)


@pytest.mark.parametrize("connections", [1, 3])
def test_every_request_is_sent_once(connections: int) -> None:
    with serving(lambda _data, _number: OK) as server:
        done = Load(server.address, [get(n) for n in range(20)], connections, 30).run()
        assert paths(server) == sorted(b"/%d" % n for n in range(20))
    assert (done.count, done.failures.total()) == (20, 0)
    assert len(done.latencies_s) == 20


def test_requests_can_be_repeated_until_told_to_stop() -> None:
    with serving(lambda _data, _number: OK) as server:
        load = Load(
            server.address, [get(1)], 1, 30, repeat=True, until=lambda: len(server.seen) >= 7
        )
        assert load.run().count >= 7


def test_failures_are_counted_apart_and_the_first_is_shown() -> None:
    bad = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 5\r\n\r\nlater"
    with serving(lambda _data, number: bad if number in (2, 4) else OK) as server:
        done = Load(server.address, [get(n) for n in range(6)], 1, 30).run()
    assert (done.count, dict(done.failures), done.first_failure) == (4, {"503": 2}, "later")


def test_a_failure_of_the_usual_length_is_a_failure() -> None:
    bad = OK.replace(b"200", b"500")
    with serving(lambda _data, number: bad if number == 5 else OK) as server:
        done = Load(server.address, [get(n) for n in range(6)], 1, 30).run()
    assert (done.count, dict(done.failures)) == (5, {"500": 1})


def test_a_lost_connection_is_a_failure_and_is_made_again() -> None:
    with serving(lambda _data, number: b"" if number == 2 else OK) as server:
        done = Load(server.address, [get(n) for n in range(5)], 1, 30).run()
    assert (done.count, dict(done.failures)) == (4, {"ConnectionResetError": 1})


def test_a_server_that_only_fails_ends_the_run() -> None:
    with serving(lambda _data, _number: b"") as server:
        done = Load(server.address, [get(1)], 1, 30, repeat=True).run()
    assert done.count == 0
    assert done.is_hopeless


def test_large_bodies_go_both_ways_whole() -> None:
    body = bytes(range(256)) * 20_000
    head = b"PUT /x HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    request = Request(head, body)
    with serving(lambda _data, _number: answer) as server:
        done = Load(server.address, [request] * 3, 2, 30).run()
        assert server.seen == [head + body] * 3
        assert exchange(server.address, request) == body
    assert (done.count, done.failures.total()) == (3, 0)


def test_answers_of_several_lengths_are_told_apart() -> None:
    def answer(_data: bytes, number: int) -> bytes:
        body = b"x" * (number * 37_000 % 300_000)
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    with serving(answer) as server:
        done = Load(server.address, [get(n) for n in range(40)], 2, 30).run()
    assert (done.count, done.failures.total()) == (40, 0)


def test_lengths_that_differ_are_never_taken_for_usual_again() -> None:
    with serving(lambda _data, _number: OK) as server:
        load = Load(server.address, [get(1)], 1, 30)
        for length_seen, usual in ((7, 7), (7, 7), (8, -1), (8, -1)):
            load._learn(length_seen)
            assert load._usual == usual
        load.run()


def test_an_exchange_returns_the_servers_answer() -> None:
    bad = b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone"
    with (
        serving(lambda _data, _number: bad) as server,
        pytest.raises(RuntimeError, match=r"GET /3 HTTP/1\.1: 404 gone"),
    ):
        exchange(server.address, get(3))
