"""Runs Spark drivers as processes of their own, and says where their jars are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from running_tarn import BIN, RunningTarn, clean_environment
from slowness import scaled
from tests.support.servers.java_archives import spark_options

__all__ = [
    "QUICK_JAVA",
    "as_admin",
    "assert_nothing_is_left",
    "driver",
    "jars_of",
    "run_job",
    "set_up",
]

ROOT = Path(__file__).parents[2]
QUICK_JAVA = " ".join(("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *spark_options()))
"""Options of a Java that starts quickly: compiling code well takes longer than running it."""


def set_up(part: str) -> str:
    """Has `tools/setup` download what only some tests need; returns what it prints."""
    setup = [str(ROOT / "tools" / "setup"), part]
    done = subprocess.run(setup, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def jars_of(*pom: str) -> Path:
    """Returns the folder of Spark's jars that `tools/jars-dir` prints; `tools/setup` has filled it."""
    done = subprocess.run(
        [str(ROOT / "tools" / "jars-dir"), *pom], capture_output=True, text=True, check=True
    )
    folder = Path(done.stdout.strip())
    assert (folder / "complete").exists(), "no jars for Spark: run `tools/setup jars`"
    return folder


def driver(script: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """Returns the command of a script of this folder."""
    return [python, str(Path(__file__).with_name(f"{script}.py")), *arguments]


def as_admin(tarn: RunningTarn) -> dict[str, str]:
    """Returns the variables by which scripts find a Tarn and its administrator's key."""
    return {
        "LAKE_ENDPOINT": tarn.endpoint,
        "LAKE_KEY": tarn.access_key_id,
        "LAKE_SECRET": tarn.secret_access_key,
        "LAKE_SETTINGS": str(tarn.settings),
        "LAKE_BIN": str(BIN),
    }


def assert_nothing_is_left(s3: Any, repository: str, refs: tuple[str, ...]) -> None:
    """Checks that no committer has left a file of its own, or an open upload."""
    for ref in refs:
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=repository, Prefix=ref)
        keys = [each["Key"] for page in pages for each in page["Contents"]]
        assert keys
        marks = ("_temporary", "__magic", ".spark-staging")
        assert [key for key in keys if any(mark in key for mark in marks)] == []
        assert not s3.list_multipart_uploads(Bucket=repository, Prefix=ref).get("Uploads")


def run_job(
    command: list[str],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    seconds: float = 240,
) -> str:
    """Runs a Spark driver; all processes that it started have ended afterwards.

    The driver dies with this process (`tarn_cli.node.lifeline`), and its Java with the driver.

    Args:
        command: the driver.
        folder: where it runs, and where its log is written.
        environment: further variables.
        seconds: its time on the machine of reference.
    """
    java = subprocess.run(
        [str(ROOT / "tools" / "java-home")], capture_output=True, text=True, check=True
    )
    log = folder / "spark.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tarn_cli.node.lifeline", str(os.getpid()), *command],
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=folder,
            env=clean_environment(
                JAVA_HOME=java.stdout.strip(),
                JDK_JAVA_OPTIONS=QUICK_JAVA,
                SPARK_LOCAL_IP="127.0.0.1",
                PYTHONPATH=str(ROOT / "jobs"),  # for interpreters without Tarn
                **(environment or {}),
            ),
            start_new_session=True,
        )
        try:
            out, _ = process.communicate(timeout=scaled(seconds))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    tail = log.read_text(errors="replace")[-6000:]
    assert process.returncode == 0, f"{out.decode()}\n{tail}"
    return out.decode()
