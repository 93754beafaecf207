"""A load on the S3 endpoint, run inside a cluster: writes one JSON line per operation to standard output.

It runs in a pod with the image `tools`, so it imports nothing of the checkout. `AWS_CA_BUNDLE` names the authority of
the endpoint. `tests/cluster` reads the lines into a history of `tests.support.check`. A request is sent once; if its
answer is lost or a 5xx, its outcome is unknown. It ends when the file STOP exists, or after SECONDS.

    python cluster_load.py ENDPOINT REPOSITORY SECONDS
"""

from __future__ import annotations

import http.client
import json
import os
import random
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

BRANCH = "main"
KEYS = [f"load/{number:02}" for number in range(24)]
SLOW_KEYS = [f"slow/{number}" for number in range(4)]
CLIENTS = 4
PAUSE_SECONDS = 0.05
COMMIT_SECONDS = 6.0
QUIET_SECONDS = 180.0
SLOW_PIECES = 20
SLOW_PIECE_SECONDS = 0.3
STOP = Path("/tmp/stop")
NOT_FOUND = 404
SERVER_ERROR = 500


class Recorder:
    """Writes the operations; its clock counts microseconds, and no two times are equal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._value = 0

    def tick(self) -> int:
        with self._lock:
            self._last = max(self._last + 1, time.monotonic_ns() // 1000)
            return self._last

    def new_value(self) -> int:
        with self._lock:
            self._value += 1
            return self._value

    def write(self, **line: Any) -> None:
        text = json.dumps(line)
        with self._lock:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()


class Load:
    """What the threads share: where they work, and whether they go on."""

    def __init__(self, endpoint: str, repository: str, seconds: float) -> None:
        self.endpoint = endpoint
        self.repository = repository
        self.recorder = Recorder()
        self._end = time.monotonic() + seconds

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self._end and not STOP.exists()


def client(endpoint: str) -> Any:
    """A client that sends each request once."""
    return boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        config=Config(
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=5,
            read_timeout=60,
            s3={"addressing_style": "path"},
            signature_version="s3v4",  # of presigned requests, too
        ),
    )


def operation(s3: Any, load: Load, proc: str, kind: str, key: str) -> bool:
    """Sends one request and records its answer; returns whether it was acknowledged."""
    recorder = load.recorder
    place = {"Bucket": load.repository, "Key": f"{BRANCH}/{key}"}
    value: int | None = {"put": None, "delete": 0, "get": None}[kind]
    if kind == "put":
        value = recorder.new_value()
    begin, outcome, note = recorder.tick(), "ok", ""
    try:
        if kind == "put" and key in SLOW_KEYS:
            status, note = slow_put(s3, place, f"v{value}".encode())
            outcome = "ok" if status == 200 else "info" if status >= SERVER_ERROR else "problem"
        elif kind == "put":
            s3.put_object(**place, Body=f"v{value}".encode())
        elif kind == "delete":
            s3.delete_object(**place)
        else:
            value = int(s3.get_object(**place)["Body"].read()[1:])
    except ClientError as error:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        note = f"{status} {error.response['Error']['Code']}"
        if kind == "get" and status == NOT_FOUND:
            value = 0
        else:
            outcome = "info" if status >= SERVER_ERROR else "problem"
    except (BotoCoreError, OSError, http.client.HTTPException) as error:
        outcome, note = "info", type(error).__name__
    recorder.write(
        proc=proc,
        kind=kind,
        key=key,
        value=value,
        inv=begin,
        end=recorder.tick(),
        outcome=outcome,
        note=note,
    )
    return outcome == "ok"


def slow_put(s3: Any, place: dict[str, str], value: bytes) -> tuple[int, str]:
    """Uploads a body in pieces over some seconds; returns the status and, of a failure, its text."""
    url = urlsplit(s3.generate_presigned_url("put_object", Params=place))
    assert url.hostname is not None
    trusted = ssl.create_default_context(cafile=os.environ["AWS_CA_BUNDLE"])
    connection = http.client.HTTPSConnection(url.hostname, url.port, timeout=60, context=trusted)
    try:
        connection.putrequest("PUT", f"{url.path}?{url.query}")
        connection.putheader("Content-Length", str(len(value) + SLOW_PIECES))
        connection.endheaders(value)
        for _ in range(SLOW_PIECES):
            time.sleep(SLOW_PIECE_SECONDS)
            connection.send(b" ")
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        code = text.partition("<Code>")[2].partition("</Code>")[0]
        return answer.status, "" if answer.status == 200 else f"{answer.status} {code}"
    finally:
        connection.close()


def work(load: Load, proc: str) -> None:
    """One client: writes, deletes and reads random keys until the end."""
    s3, rng = client(load.endpoint), random.Random(proc)
    while load.goes_on:
        kind = rng.choice(["put", "put", "put", "delete", "get", "get", "get"])
        operation(s3, load, proc, kind, rng.choice(KEYS))
        time.sleep(PAUSE_SECONDS)


def upload_slowly(load: Load, proc: str) -> None:
    """One client whose requests run for seconds, so that each stop of a pod meets some of them."""
    s3, rng = client(load.endpoint), random.Random(proc)
    while load.goes_on:
        operation(s3, load, proc, "put", rng.choice(SLOW_KEYS))


def commit(load: Load) -> None:
    """Commits from time to time; the id of an acknowledged commit must be in the log at the end."""
    recorder = load.recorder
    while load.goes_on:
        time.sleep(COMMIT_SECONDS)
        begin = recorder.tick()
        command = ["tarn", "--json", "commit", f"{load.repository}/{BRANCH}", "-m", "load"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        answer = done.stdout if done.returncode == 0 else ""
        recorder.write(
            proc="committer",
            kind="commit",
            key=None,
            value=None,
            inv=begin,
            end=recorder.tick(),
            outcome="ok" if answer else "info",
            note=answer or done.stderr,
        )


def main() -> int:
    load = Load(sys.argv[1], sys.argv[2], float(sys.argv[3]))
    recorder = load.recorder
    threads = [
        threading.Thread(target=work, args=(load, f"c{number}")) for number in range(CLIENTS)
    ]
    threads += [
        threading.Thread(target=upload_slowly, args=(load, f"slow{number}")) for number in range(2)
    ]
    threads.append(threading.Thread(target=commit, args=(load,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Requests that lost their client end within the time-outs of the services' calls; no new ones come.
    time.sleep(5)
    recorder.write(quiet=recorder.tick())
    s3, deadline = client(load.endpoint), time.monotonic() + QUIET_SECONDS
    for key in [*KEYS, *SLOW_KEYS]:
        while not operation(s3, load, "last", "get", key):
            if time.monotonic() > deadline:
                return 1
            time.sleep(1)
    log = ["tarn", "--json", "log", f"{load.repository}/{BRANCH}", "--limit", "1000"]
    found = subprocess.run(log, capture_output=True, text=True, check=True)
    recorder.write(log=found.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
