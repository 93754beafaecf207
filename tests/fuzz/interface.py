"""Requests that the published interface of the REST endpoint describes, and such as it does not, to a running endpoint.

schemathesis makes them from `/openapi.json`: for each operation that is offered, values that fit, and values that do
not. Whatever is sent, the answer is no defect, and has the status, the content and the shape that the interface says.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from rest_service import Rest, running_rest
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from tarn_api.http import HttpBounds, HttpServer

__all__ = ["Served", "served", "try_operations"]

DOCUMENT: Final = Path(__file__).parents[2] / "services" / "api" / "tarn_api" / "openapi.json"
KEPT: Final = {"repository": "lake", "branch": "main", "ref": "main", "sourceRef": "main"}
"""Names that exist. Half of the requests use them, so that they reach what is behind a name."""
ENDS: Final = frozenset({"deleteRepository"})
"""Would end what the other requests need."""
WRONG: Final = frozenset({500, 503})
_SECONDS: Final = 20.0


@dataclass(frozen=True)
class Served:
    """An endpoint on a port.

    Attributes:
        url: its address.
        rest: the endpoint, and what is behind it.
        loop: the event loop that serves it.
    """

    url: str
    rest: Rest
    loop: asyncio.AbstractEventLoop

    def pass_time(self) -> None:
        """Lets a second pass for it: buckets of rates are full again."""
        self.loop.call_soon_threadsafe(self.rest.service.clock.advance, 1.0)


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    """Serves an endpoint over one replica, in a thread."""
    ready: list[Served] = []
    started = threading.Event()
    stop: list[Any] = []

    async def serve() -> None:
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(over.set))
        async with running_rest(folder) as rest, HttpServer(rest.endpoint, HttpBounds()) as server:
            port = await server.listen("127.0.0.1", 0, tls=None, reuse_port=False)
            ready.append(Served(f"http://127.0.0.1:{port}", rest, loop))
            started.set()
            await over.wait()
            await server.drain(1.0)

    def run() -> None:
        try:
            asyncio.run(serve())
        finally:
            started.set()

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    try:
        if not ready:
            raise RuntimeError("the endpoint did not start")
        yield ready[0]
    finally:
        for each in stop:
            each()
        thread.join()


def try_operations(at: Served, *, number: int, examples: int) -> int:
    """Sends so many requests to each operation, and as many that do not fit; returns how many it sent.

    Args:
        at: the endpoint.
        number: the seed.
        examples: of each kind.

    Raises:
        Exception: an answer is wrong; its text has the request as a command of curl.
    """
    schema = schemathesis.openapi.from_dict(json.loads(DOCUMENT.read_text()))
    names = ["status_code_conformance", "content_type_conformance", "response_schema_conformance"]
    checks = CHECKS.get_by_names(names)
    rng = random.Random(number)
    sent = 0
    with requests.Session() as session:

        def send(case: Any) -> None:
            nonlocal sent
            sent += 1
            if rng.random() < 0.5:
                for name in KEPT.keys() & (case.path_parameters or {}).keys():
                    case.path_parameters[name] = KEPT[name]
            at.pass_time()
            headers = {"authorization": at.rest.admin}
            answer = case.call(base_url=at.url, session=session, headers=headers, timeout=_SECONDS)
            command = case.as_curl_command()
            assert answer.status_code not in WRONG, f"{answer.status_code} {answer.text}: {command}"
            if answer.status_code != 501:
                case.validate_response(answer, checks=checks)

        for found in schema.get_all_operations():
            operation: Any = found.ok()  # type: ignore[union-attr]  # the document is valid
            raw = operation.definition.raw
            if "x-tarn-not-offered" in raw or raw["operationId"] in ENDS:
                continue
            for mode in GenerationMode:
                cases = operation.as_strategy(generation_mode=mode)
                limits: Any = settings(
                    max_examples=examples,
                    database=None,
                    deadline=None,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )
                run = limits(seed(number)(given(cases)(send)))  # type: ignore[no-untyped-call]
                with suppress(Unsatisfiable):  # nothing of this operation can be wrong
                    run()
    return sent
