"""A real Tarn for tests: processes on free ports of the loopback, which are always stopped at the end.

It is started by `tarn up`, as users do, in one of two forms: a single node (all services in each worker
process, in-process calls) or separate processes over gRPC. The supervisor is tied to this process by
`tarn_cli.node.lifeline`: it ends even if the test run is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forked_cli
from forked_cli import Done
from slowness import scaled
from tests.support.unhandled import check_log

START_SECONDS = scaled(90)
STOP_SECONDS = scaled(60)
BIN = Path(sys.executable).parent
WITHOUT_PANDAS = Path(__file__).with_name("without_pandas")
__all__ = [
    "BIN",
    "Done",
    "Place",
    "RunningTarn",
    "clean_environment",
    "launch",
    "running_tarn",
    "set_up",
    "stop",
    "wait_until_up",
]

_WARNINGS = "always::ResourceWarning"


@dataclass(frozen=True, slots=True)
class Place:
    """A place for objects, as clients of S3 name it.

    Attributes:
        bucket: the bucket.
        root: how all of its keys begin.
    """

    bucket: str
    root: str


@dataclass(slots=True)
class RunningTarn:
    """One running installation.

    Attributes:
        form: see `running_tarn`.
        data: its data folder.
        settings: settings file of the command line, with the admin's key.
        endpoint: URL of the S3 endpoint.
        server: `host:port` of graveler's rpc.
        auth_server: `host:port` of auth's rpc.
        access_key_id: key id of the admin.
        secret_access_key: secret of the admin.
    """

    form: str
    data: Path
    settings: Path
    supervisor: subprocess.Popen[bytes]
    endpoint: str = ""
    server: str = ""
    auth_server: str = ""
    access_key_id: str = ""
    secret_access_key: str = field(default="", repr=False)
    _repositories: int = 0

    @property
    def log(self) -> Path:
        return self.data.parent / f"{self.data.name}.log"

    def state(self) -> dict[str, Any]:
        """The content of `tarn.json`."""
        return dict(json.loads((self.data / "tarn.json").read_text()))

    def cli(self, *arguments: str, timeout: float = 60, stdin: bytes | None = None) -> Done:
        """Runs a `tarn` command as the admin."""
        command = ["--settings", str(self.settings), *arguments]
        return forked_cli.run(command, clean_environment(), stdin=stdin, timeout_s=timeout)

    def ok(self, *arguments: str, **options: Any) -> Done:
        """Runs a `tarn` command as the admin; it must succeed."""
        done = self.cli(*arguments, **options)
        assert done.code == 0, f"tarn {' '.join(arguments)}: {done.err}"
        return done

    def new_repository(self) -> str:
        """Creates a repository that no other test uses."""
        self._repositories += 1
        name = f"lake-{os.getpid()}-{self._repositories}"
        self.ok("repo", "create", name)
        return name

    def new_bucket(self) -> Place:
        """Has a client make a bucket that no other test uses."""
        self._repositories += 1
        name = f"bucket-{os.getpid()}-{self._repositories}"
        client = self.s3()
        client.create_bucket(Bucket=name)
        client.close()
        return Place(name, "")

    def s3(self, **config: Any) -> Any:
        """Returns a boto3 client of the admin."""
        import boto3
        from botocore.config import Config

        options = {
            "s3": {"addressing_style": "path"},
            "retries": {"mode": "standard", "max_attempts": 8},
            "connect_timeout": 10,
            "read_timeout": 60,
            **config,
        }
        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
            region_name="us-east-1",
            config=Config(**options),
        )

    def read_traced(self, trace_id: str, span_id: str) -> None:
        """Writes an object, and reads it inside a sampled trace of the client (W3C Trace Context)."""

        def add_context(request: Any, **_: Any) -> None:
            request.headers["traceparent"] = f"00-{trace_id}-{span_id}-01"

        repository, s3 = self.new_repository(), self.s3()
        s3.put_object(Bucket=repository, Key="main/a", Body=b"abc")
        s3.meta.events.register("before-send.s3.GetObject", add_context)
        s3.get_object(Bucket=repository, Key="main/a")["Body"].read()
        s3.close()

    def tail(self, lines: int = 80) -> str:
        """Returns the end of the log of its processes."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


def clean_environment(**more: str) -> dict[str, str]:
    """Returns this environment without variables that configure S3 clients or Tarn."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "TARN_")) and not name.lower().endswith("_proxy")
    }
    return {**kept, **more}


def launch(
    data: Path, *options: str, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Starts `tarn up` on a data folder; appends its output to the log beside the folder.

    Warnings about unclosed resources are enabled; `stop` checks the log for them.
    """
    more = {"PYTHONWARNINGS": _WARNINGS, **(environment or {})}
    more["PYTHONPATH"] = os.pathsep.join(
        [str(WITHOUT_PANDAS), *filter(None, [more.get("PYTHONPATH")])]
    )
    with (data.parent / f"{data.name}.log").open("ab") as output:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tarn_cli.node.lifeline",
                str(os.getpid()),
                str(BIN / "tarn"),
                "up",
                "--data-dir",
                str(data),
                *options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=clean_environment(**more),
        )


@contextmanager
def running_tarn(folder: Path, form: str, *options: str) -> Iterator[RunningTarn]:
    """Starts a Tarn in a folder, creates its first admin, and stops it at the end.

    Args:
        folder: folder for its data, its log and the admin's key.
        form: `separate` for separate processes of the services; any other value is a single node.
        options: further options of `tarn up`.
    """
    data = folder / "data"
    processes = ("--separate",) if form == "separate" else ("--workers", "2")
    supervisor = launch(data, "--port", "0", "--rpc-port", "0", *processes, *options)
    tarn = RunningTarn(form, data, folder / "credentials", supervisor)
    try:
        wait_until_up(tarn)
        set_up(tarn)
        yield tarn
    finally:
        stop(tarn)


def wait_until_up(tarn: RunningTarn) -> None:
    """Returns when the state file exists: it is written when every worker serves."""
    deadline = time.monotonic() + START_SECONDS
    while not (tarn.data / "tarn.json").exists():
        code = tarn.supervisor.poll()
        assert code is None, f"tarn up ended with {code}:\n{tarn.tail()}"
        assert time.monotonic() < deadline, f"tarn up took too long:\n{tarn.tail()}"
        time.sleep(0.05)
    state = tarn.state()
    tarn.endpoint, tarn.server = state["endpoint"], state["server"]
    tarn.auth_server = state["auth_server"]


def set_up(tarn: RunningTarn) -> None:
    """Creates the first admin with the command line."""
    tarn.settings.touch()
    made = tarn.ok(
        "--json", "auth", "setup", "--data-dir", str(tarn.data), "--save", str(tarn.settings)
    ).json
    tarn.access_key_id = made["access_key_id"]
    tarn.secret_access_key = made["secret_access_key"]


def stop(tarn: RunningTarn) -> None:
    """Stops the supervisor and everything below it.

    Raises:
        AssertionError: it does not stop with exit code 0, or its log reports a defect.
    """
    if tarn.supervisor.poll() is None:
        tarn.supervisor.send_signal(signal.SIGTERM)
    try:
        code = tarn.supervisor.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        tarn.supervisor.kill()
        tarn.supervisor.wait()
        raise AssertionError(f"tarn did not stop:\n{tarn.tail()}") from None
    assert code == 0, f"tarn up ended with {code}:\n{tarn.tail()}"
    check_log(tarn.log)
