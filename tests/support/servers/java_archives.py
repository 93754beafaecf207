"""Archives of the classes that Cassandra and Spark load when they start (class data sharing of Java).

With its archive a node of Cassandra takes two thirds of the processor time until it answers, and a driver of Spark six
tenths until its first job has ended; a run of the tests starts many of them.

`python -m tests.support.servers.java_archives` makes those that are missing; `make test` does so. They are kept in the
virtual environment, because they name the jars by their paths. Without one, or with one of other jars or of another
Java, everything starts as it does without archives.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["AGENT", "cassandra_options", "main", "spark_options"]

_FOLDER = Path(sys.prefix) / "java"
AGENT = ("-XX:+UnlockDiagnosticVMOptions", "-XX:+AllowArchivingWithJavaAgent")
"""Cassandra has an agent, which changes no class."""
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Of an archive that does not fit, Java would warn in the output of the program."""
_END_SECONDS = 120


def cassandra_options() -> tuple[str, ...]:
    """Returns the options of Java by which a node uses its archive; none if it is missing."""
    path = _path("cassandra")
    return (f"-XX:SharedArchiveFile={path}", *AGENT, *_QUIET) if path.exists() else ()


def spark_options() -> tuple[str, ...]:
    """Returns the options of Java by which a driver uses its archive; none if it is missing."""
    path = _path("spark")
    return (f"-XX:SharedArchiveFile={path}", *_QUIET) if path.exists() else ()


def main() -> None:
    """Makes the archives that are missing."""
    _FOLDER.mkdir(exist_ok=True)
    for name, make in (("cassandra", _of_cassandra), ("spark", _of_spark)):
        if not _path(name).exists():
            with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
                made = Path(folder) / "made.jsa"
                make(Path(folder), made)
                made.replace(_path(name))


def _path(name: str) -> Path:
    return _FOLDER / f"{name}.jsa"


def _of_cassandra(folder: Path, archive: Path) -> None:
    from tests.support.servers.cassandra_nodes import CassandraNodes

    with CassandraNodes(folder, jvm=(f"-XX:ArchiveClassesAtExit={archive}", *AGENT)) as nodes:
        _check(nodes.end(0, _END_SECONDS), -signal.SIGTERM, 128 + signal.SIGTERM)


def _of_spark(folder: Path, archive: Path) -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    java_home = Path(__file__).parents[3] / "tools" / "java-home"
    found = subprocess.run([str(java_home)], capture_output=True, text=True, check=True)
    os.environ |= {"JAVA_HOME": found.stdout.strip(), "SPARK_LOCAL_IP": "127.0.0.1"}
    java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={archive}"
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.extraJavaOptions", java).getOrCreate()
    rows = spark.range(1000).withColumn("part", f.col("id") % 5)
    rows.write.partitionBy("part").parquet(str(folder / "table"))
    read = spark.read.parquet(str(folder / "table"))
    read.groupBy("part").agg(f.count("*")).orderBy("part").collect()
    read.join(rows, "id").rdd.map(lambda row: row.id).count()
    java_process = SparkContext._gateway.proc  # type: ignore[union-attr]  # py4j has no types
    spark.stop()
    java_process.stdin.close()  # it ends, and then writes the archive
    _check(java_process.wait(_END_SECONDS), 0, -signal.SIGTERM, 128 + signal.SIGTERM)


def _check(code: int, *expected: int) -> None:
    """Raises if Java did not end by itself: half an archive would end each Java that uses it."""
    if code not in expected:
        raise RuntimeError(f"Java ended with {code} while it wrote its archive")


if __name__ == "__main__":
    main()
