"""A Spark session that reads and writes Tarn through S3A, with all settings that users need.

See `docs/user/spark.md`. `tools/spark/pom.xml` lists the jars. If they include spark-hadoop-cloud, Spark
commits its jobs with the magic committer: tasks upload and the driver completes the uploads, so files
appear without a rename. Otherwise the classic file committer writes to `_temporary` and renames, which
Tarn does without copying bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

__all__ = ["Lake", "spark_session", "spark_settings"]


@dataclass(frozen=True, slots=True)
class Lake:
    """Endpoint and key of a Tarn.

    Attributes:
        endpoint: URL of the S3 endpoint.
        access_key_id: id of the key. Empty: Spark takes the key from the variables `AWS_ACCESS_KEY_ID`,
            `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`, as in a transaction.
        secret_access_key: its secret.
        session_token: token of a session key; empty for a key pair.
    """

    endpoint: str
    access_key_id: str = ""
    secret_access_key: str = ""
    session_token: str = ""

    def __repr__(self) -> str:
        return f"Lake({self.endpoint!r}, {self.access_key_id!r})"


def spark_settings(lake: Lake) -> dict[str, str]:
    """Settings of S3A, as Spark settings by their full names."""
    s3a = {
        "endpoint": lake.endpoint,
        # S3A needs a region; Tarn accepts this one by default.
        "endpoint.region": "us-east-1",
        # A repository is a bucket, not a host name.
        "path.style.access": "true",
        "connection.ssl.enabled": str(lake.endpoint.startswith("https:")).lower(),
        # Skips checks before creation, so some errors appear later; Tarn's listings are consistent.
        "performance.flags": "create,mkdir",
    }
    if lake.access_key_id:
        s3a |= {"access.key": lake.access_key_id, "secret.key": lake.secret_access_key}
    if lake.session_token:
        s3a["session.token"] = lake.session_token
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()}


def spark_session(
    name: str,
    lake: Lake,
    jars: Path,
    *,
    magic: bool = True,
    further_jars: Sequence[Path] = (),
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session on this machine, with two threads, unless `settings` name another master.

    Args:
        name: name of the Spark application.
        lake: endpoint and key pair.
        jars: the folder that `tools/jars-dir` prints; holds `s3` and `cloud`.
        magic: True: commit with the magic committer. False: with the classic file committer.
        further_jars: jars beside those, e.g. of Iceberg or Delta (`tools/jars-dir tables`).
        settings: further settings by their full names; they replace those of this function.
    """
    folders = [jars / "s3", jars / "cloud"] if magic else [jars / "s3"]
    class_path = [str(jar) for folder in folders for jar in sorted(folder.glob("*.jar"))]
    class_path += map(str, further_jars)
    builder = (
        SparkSession.builder.appName(name)
        .master("local[2]")
        .config("spark.jars", ",".join(class_path))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.hadoop.fs.s3a.committer.name", "magic" if magic else "file")
    )
    for key, value in {**spark_settings(lake), **(settings or {})}.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session
