"""Runs Spark drivers as processes of their own, and says where their jars are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from running_tarn import BIN, RunningTarn, clean_environment
from slowness import scaled

__all__ = ["ROOT", "as_admin", "driver", "jars_of", "run_job"]

ROOT = Path(__file__).parents[2]


def jars_of(*part: str) -> Path:
    """Returns the folder of Spark's jars that `tools/setup` has downloaded.

    Args:
        part: none for those that speak S3; the name of further ones (`tools/jars-dir`), which are downloaded now.
    """
    if part:
        setup = [str(ROOT / "tools" / "setup"), *part]
        done = subprocess.run(setup, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run(
        [str(ROOT / "tools" / "jars-dir"), *part], capture_output=True, text=True, check=True
    )
    folder = Path(done.stdout.strip())
    assert (folder / "complete").exists(), "no jars for Spark: run `tools/setup jars`"
    return folder


def driver(script: str, *arguments: str) -> list[str]:
    """Returns the command of a script of this folder."""
    return [sys.executable, str(Path(__file__).with_name(f"{script}.py")), *arguments]


def as_admin(tarn: RunningTarn) -> dict[str, str]:
    """Returns the variables by which scripts find a Tarn and its administrator's key."""
    return {
        "LAKE_ENDPOINT": tarn.endpoint,
        "LAKE_KEY": tarn.access_key_id,
        "LAKE_SECRET": tarn.secret_access_key,
        "LAKE_SETTINGS": str(tarn.settings),
        "LAKE_BIN": str(BIN),
    }


def run_job(command: list[str], folder: Path, seconds: float = 240, **environment: str) -> str:
    """Runs a Spark driver; all processes that it started have ended afterwards.

    The driver dies with this process (`tarn_cli.node.lifeline`), and its Java with the driver.

    Args:
        command: the driver.
        folder: where it runs, and where its log is written.
        seconds: its time on the machine of reference.
        environment: further variables.
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
                JDK_JAVA_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # quick to start
                SPARK_LOCAL_IP="127.0.0.1",
                **environment,
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
