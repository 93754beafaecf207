"""A day's work with lakeFS's Hadoop file system, for `tests/system/rest/test_hadoop_lakefs.py`, in one Java.

    python hadoop_lakefs_day.py PLAN

The plan is a JSON file: `settings` of Spark, `jars` and `further_jars`, `server` (url, key, secret) and the `store`
under it, `repositories` by scheme, `program` of a page and `folder` for local files. Prints one JSON object: what was
seen, by scheme, and what the program printed.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lakefs_sdk
from lakefs_sdk import models
from lakefs_sdk.client import LakeFSClient
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tarn_spark.session import Lake, spark_session

LARGE = 11 << 20
"""Bytes of a file that S3A writes in parts of 5 MiB."""


class Files:
    """The file system of Hadoop below one folder, with its answers as values of Python."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        java: Any = spark
        self.java, self.gateway, self.root = java._jvm, java.sparkContext._gateway, root
        self.settings = java.sparkContext._jsc.hadoopConfiguration()
        self.fs = self.path("").getFileSystem(self.settings)

    def path(self, name: str) -> Any:
        return self.java.org.apache.hadoop.fs.Path(f"{self.root}/{name}")

    def write(self, name: str, body: bytes, *, overwrite: bool = True) -> None:
        out = self.fs.create(self.path(name), overwrite)
        out.write(body)
        out.close()

    def read(self, name: str, start: int, count: int) -> str:
        """Returns bytes from an offset, as text."""
        stream = self.fs.open(self.path(name))
        try:
            stream.seek(start)
            return bytes(stream.read() for _ in range(count)).decode()
        finally:
            stream.close()

    def status(self, name: str) -> list[Any]:
        found = self.fs.getFileStatus(self.path(name))
        return [self._name(found), found.isDirectory(), found.getLen()]

    def listed(self, name: str = "") -> list[str]:
        return sorted(map(self._name, self.fs.listStatus(self.path(name))))

    def tree(self, name: str = "") -> list[str]:
        found, names = self.fs.listFiles(self.path(name), True), []
        while found.hasNext():
            names.append(self._name(found.next()))
        return sorted(names)

    def matching(self, pattern: str) -> list[str]:
        return sorted(map(self._name, self.fs.globStatus(self.path(pattern))))

    def exists(self, name: str) -> bool:
        return bool(self.fs.exists(self.path(name)))

    def rename(self, source: str, target: str) -> bool:
        return bool(self.fs.rename(self.path(source), self.path(target)))

    def delete(self, name: str, *, recursive: bool = False) -> bool:
        return bool(self.fs.delete(self.path(name), recursive))

    def shell(self, *arguments: str) -> int:
        """Runs `hadoop fs` and returns its status."""
        array = self.gateway.new_array(self.java.java.lang.String, len(arguments))
        for place, argument in enumerate(arguments):
            array[place] = argument
        tools = self.java.org.apache.hadoop
        return int(tools.util.ToolRunner.run(self.settings, tools.fs.FsShell(), array))

    def _name(self, status: Any) -> str:
        return str(status.getPath().toString()).removeprefix(f"{self.root}/")


def refusal(call: Callable[..., object], *arguments: Any, **more: Any) -> str:
    """Returns the class of the exception by which Java refuses a call; empty if it does not."""
    try:
        call(*arguments, **more)
    except Py4JJavaError as error:
        return str(error.java_exception.getClass().getSimpleName())
    except CapturedException as error:  # PySpark has a class of its own for some
        return type(error).__name__
    return ""


def work_with_files(files: Files, folder: Path) -> dict[str, Any]:
    """Creates, reads, lists, renames and deletes."""
    files.write("raw/a.csv", b"0123456789")
    files.write("raw/b.csv", b"b")
    files.write("raw/deep/c.txt", b"")
    told: dict[str, Any] = {
        "ranges": [files.read("raw/a.csv", start, count) for start, count in ((0, 10), (7, 3))],
        "status": [files.status(name) for name in ("raw/a.csv", "raw/deep", "raw/deep/c.txt")],
        "listed": files.listed("raw"),
        "tree": files.tree("raw"),
        "matching": files.matching("raw/*.csv"),
        "exists": [files.exists(name) for name in ("raw/a.csv", "raw/deep", "raw", "ra", "raw/a")],
        "of_nothing": refusal(files.status, "nothing"),
        "again": refusal(files.write, "raw/a.csv", b"x", overwrite=False),
        "append": refusal(files.fs.append, files.path("raw/a.csv")),
    }
    files.write("raw/a.csv", b"9876543210")
    told["overwritten"] = files.read("raw/a.csv", 0, 10)
    files.fs.mkdirs(files.path("empty/deep"))
    told["empty"] = [
        files.status("empty/deep")[1],
        files.listed("empty"),
        files.listed("empty/deep"),
    ]
    told["renamed"] = [
        files.rename("raw/a.csv", "raw/z.csv"),
        files.rename("raw", "cooked"),
        files.rename("nothing", "something"),
        files.rename("cooked/b.csv", "no/such/folder"),
    ]
    told["after"] = [files.tree(), files.read("cooked/z.csv", 0, 2)]
    told["deleted"] = [
        refusal(files.delete, "cooked"),
        files.delete("nothing"),
        files.delete("cooked/z.csv"),
        files.delete("cooked", recursive=True),
        files.delete("empty", recursive=True),
    ]
    large = folder / "large"
    large.write_bytes(b"x" * (LARGE - 3) + b"end")
    told["shell"] = [
        files.shell("-put", str(large), f"{files.root}/large"),
        files.status("large")[2],
        files.read("large", LARGE - 4, 4),
        files.shell("-cat", f"{files.root}/nothing"),
        files.shell("-rm", "-skipTrash", f"{files.root}/large"),
    ]
    told["left"] = files.tree()
    return told


def rows(spark: SparkSession, where: str) -> dict[int, list[int]]:
    """Returns the ids in each partition. They are sorted here: Spark would need further jobs for that."""
    found: dict[int, list[int]] = {}
    for part, id_ in sorted(spark.read.parquet(where).select("part", "id").collect()):
        found.setdefault(part, []).append(id_)
    return found


def work_with_tables(
    spark: SparkSession, sdk: LakeFSClient, scheme: str, repository: str
) -> dict[str, Any]:
    """Writes a partitioned table in each mode, commits, and reads it by a tag."""
    where = f"{scheme}://{repository}/main/table"
    some = spark.range(0, 6, 1, 1).withColumn("part", (f.col("id") % 2).cast("int"))
    some.write.partitionBy("part").parquet(where)
    told: dict[str, Any] = {"written": rows(spark, where)}
    try:
        some.write.parquet(where)
    except AnalysisException as error:
        told["again"] = error.getErrorClass()
    some.where("id < 2").write.mode("append").partitionBy("part").parquet(where)
    told["appended"] = rows(spark, where)
    commit = models.CommitCreation(message="the day", metadata={"by": "spark"})
    sdk.commits_api.commit(repository, "main", commit)
    sdk.tags_api.create_tag(repository, models.TagCreation(id="day-1", ref="main"))
    some.where("id >= 4").write.mode("overwrite").partitionBy("part").parquet(where)
    told["overwritten"] = rows(spark, where)
    told["by_tag"] = rows(spark, f"{scheme}://{repository}/day-1/table")
    told["to_tag"] = refusal(Files(spark, f"{scheme}://{repository}/day-1").write, "x", b"x")
    told["left"] = sorted(
        each.path
        for each in sdk.objects_api.list_objects(repository, "main", prefix="table").results
        if "/part-" not in each.path
    )
    return told


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    # Few and small rows: neither plans nor compiled stages pay for themselves.
    settings = {
        **plan["settings"],
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
    }
    server = plan["server"]
    sdk = LakeFSClient(
        lakefs_sdk.Configuration(
            host=server["url"], username=server["key"], password=server["secret"]
        )
    )
    spark = spark_session(
        "hadoop-lakefs",
        Lake(plan["store"]),
        Path(plan["jars"]),
        magic=False,
        further_jars=[Path(jar) for jar in plan["further_jars"]],
        settings=settings,
    )
    told: dict[str, Any] = {}
    try:
        for scheme, repository in plan["repositories"].items():
            files = Files(spark, f"{scheme}://{repository}/main/files")
            told[scheme] = {
                "files": work_with_files(files, Path(plan["folder"])),
                "tables": work_with_tables(spark, sdk, scheme, repository),
            }
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(plan["program"], {"spark": spark})
        told["printed"] = printed.getvalue()
    finally:
        spark.stop()
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
