"""Spark jobs for `test_spark_modes`, on a branch through a bucket, and after its merge on `main` by the same addresses.

    python spark_modes.py committers|tables|stream JARS TABLES BUCKET REPOSITORY BRANCH

JARS and TABLES are folders; the jars of the latter are added. The bucket is a view of `main`; the session key in
`SESSION_KEY` binds it to the branch. Prints what the job has read, as one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from spark_tables import DELTA, ICEBERG, become, iceberg_in, lake_of_main, tarn

from tarn_spark.session import Lake, spark_session

CLASSIC = {
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
}
CLOUD = {
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"
    ),
    "spark.sql.parquet.output.committer.class": (
        "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter"
    ),
}
COMMITTERS = {
    "file1": {**CLASSIC, "mapreduce.fileoutputcommitter.algorithm.version": "1"},
    "file2": {**CLASSIC, "mapreduce.fileoutputcommitter.algorithm.version": "2"},
    "directory": {**CLOUD, "fs.s3a.committer.name": "directory"},
    "partitioned": {**CLOUD, "fs.s3a.committer.name": "partitioned"},
    "magic": {**CLOUD, "fs.s3a.committer.name": "magic"},
}
CHECKPOINTS = ("renamed", "uploaded")
"""How checkpoints appear at once: by a rename, as by default, or by the end of an upload."""
BY_UPLOAD = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"


def numbered(spark: SparkSession, begin: int, end: int, part: int) -> DataFrame:
    """Rows of one partition."""
    return spark.range(begin, end, 1, 2).withColumn("part", f.lit(part))


def parts(frame: DataFrame) -> list[list[int]]:
    """Number and sum of the rows in each partition."""
    counted = frame.groupBy("part").agg(f.count("*"), f.sum("id")).orderBy("part")
    return [list(row) for row in counted.collect()]


@contextmanager
def by_files(spark: SparkSession) -> Iterator[None]:
    """Has writes use the file committer, by the settings of docs/user/spark.md."""
    settings = {"fs.s3a.committer.name": "file"} if spark.version >= "4" else CLASSIC
    before = {name: spark.conf.get(name, "") or "" for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value) if value else spark.conf.unset(name)


class Committers:
    """Each committer in each mode."""

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket

    def settings(self) -> dict[str, str]:
        return {}

    def read(self, spark: SparkSession) -> dict[str, Any]:
        tables = {
            name: parts(spark.read.parquet(f"s3a://{self.bucket}/{name}")) for name in COMMITTERS
        }
        moved = parts(spark.read.parquet(f"s3a://{self.bucket}/moved/deeper"))
        return {"tables": tables, "moved": moved}

    def write(self, spark: SparkSession) -> dict[str, Any]:
        told: dict[str, Any] = {"refused": []}
        for name, settings in COMMITTERS.items():
            session = spark.newSession()
            for key, value in settings.items():
                session.conf.set(key, value)
            told[name] = self.with_one(session, name, told["refused"])
        self.rename(spark)
        return told

    def with_one(self, spark: SparkSession, name: str, refused: list[str]) -> list[Any]:
        where = f"s3a://{self.bucket}/{name}"
        steps = []

        def step() -> None:
            spark.catalog.refreshByPath(where)
            steps.append(parts(spark.read.parquet(where)))

        rows = spark.range(0, 100, 1, 4).withColumn("part", (f.col("id") % 5).cast("int"))
        rows.write.partitionBy("part").parquet(where)
        step()
        rows.where("id < 50").write.mode("overwrite").partitionBy("part").parquet(where)
        step()
        numbered(spark, 0, 7, 9).write.mode("append").partitionBy("part").parquet(where)
        step()
        dynamic = numbered(spark, 1000, 1010, 2).write.mode("overwrite").partitionBy("part")
        dynamic = dynamic.option("partitionOverwriteMode", "dynamic")
        try:
            dynamic.parquet(where)
        except Exception as error:
            if "does not support dynamicPartitionOverwrite" not in str(error):
                raise
            refused.append(name)
            assert parts(spark.read.parquet(where)) == steps[-1], "a refused job changes nothing"
            with by_files(spark):
                dynamic.parquet(where)
        step()
        if name == "partitioned":
            # It replaces the partitions that it writes, without Spark's mode.
            replacing = numbered(spark, 0, 3, 9).write.mode("append").partitionBy("part")
            replacing.option("fs.s3a.committer.staging.conflict-mode", "replace").parquet(where)
        else:
            static = numbered(spark, 0, 3, 9).drop("part").write.mode("overwrite")
            static.parquet(f"{where}/part=9")
        step()
        self.by_sql(spark, name, where)
        step()
        return steps

    def by_sql(self, spark: SparkSession, name: str, where: str) -> None:
        """A partition, then all partitions of the rows, then a folder."""
        spark.sql(
            f"CREATE TABLE {name} (id BIGINT, part INT) USING parquet PARTITIONED BY (part)"
            f" LOCATION '{where}'"
        )
        spark.sql(f"MSCK REPAIR TABLE {name}")
        spark.sql(f"INSERT OVERWRITE {name} PARTITION (part = 1) SELECT id FROM range(4)")
        spark.sql("SET spark.sql.sources.partitionOverwriteMode = dynamic")
        with by_files(spark):
            spark.sql(f"INSERT OVERWRITE {name} SELECT id, 3 FROM range(5)")
        spark.sql("RESET spark.sql.sources.partitionOverwriteMode")
        folder = f"s3a://{self.bucket}/{name}-folder"
        for count in (6, 2):
            spark.sql(
                f"INSERT OVERWRITE DIRECTORY '{folder}' USING parquet SELECT id FROM range({count})"
            )
        assert spark.read.parquet(folder).count() == 2

    def rename(self, spark: SparkSession) -> None:
        """Renames folders of many files: as a whole, one below another, and back."""
        java: Any = spark
        path = java._jvm.org.apache.hadoop.fs.Path
        root = path(f"s3a://{self.bucket}/")
        files = root.getFileSystem(java.sparkContext._jsc.hadoopConfiguration())

        def at(name: str) -> Any:
            return path(root, name)

        rows = spark.range(0, 2000, 1, 25).withColumn("part", (f.col("id") % 8).cast("int"))
        rows.write.partitionBy("part").parquet(f"s3a://{self.bucket}/many")
        assert files.rename(at("many"), at("moved"))
        assert not files.exists(at("many"))
        files.mkdirs(at("empty"))
        assert files.rename(at("moved"), at("empty")), "S3A takes the place of an empty folder"
        files.mkdirs(at("moved"))
        assert files.rename(at("empty"), at("moved/deeper"))
        assert files.rename(at("moved/deeper/part=7"), at("moved/deeper/part=8"))
        assert not files.exists(at("moved/deeper/part=7"))
        files.delete(at("moved/deeper/part=0"), True)


class Tables:
    """Tables of Iceberg and of Delta."""

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.delta = f"s3a://{bucket}/delta"

    def settings(self) -> dict[str, str]:
        return {
            **iceberg_in(self.bucket),
            "spark.databricks.delta.snapshotPartitions": "1",  # of 50: the logs are short
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.extensions": f"{ICEBERG},{DELTA}",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }

    def read(self, spark: SparkSession) -> dict[str, Any]:
        delta = spark.read.format("delta")
        before = f"ice.shop.clicks VERSION AS OF {self.snapshot(spark, 0)}"
        return {
            "delta": parts(delta.load(self.delta)),
            "delta_before": parts(delta.option("versionAsOf", 1).load(self.delta)),
            "iceberg": parts(spark.table("ice.shop.clicks")),
            "iceberg_before": parts(spark.sql(f"SELECT * FROM {before}")),
        }

    def snapshot(self, spark: SparkSession, number: int) -> int:
        ids = spark.sql("SELECT snapshot_id FROM ice.shop.clicks.snapshots ORDER BY committed_at")
        return int(ids.collect()[number][0])

    def write(self, spark: SparkSession) -> dict[str, Any]:
        rows = spark.range(0, 100, 1, 2).withColumn("part", (f.col("id") % 3).cast("int"))
        rows.write.format("delta").partitionBy("part").save(self.delta)
        numbered(spark, 0, 4, 9).write.format("delta").mode("append").save(self.delta)
        replaced = numbered(spark, 0, 5, 1).write.format("delta").mode("overwrite")
        replaced.option("partitionOverwriteMode", "dynamic").save(self.delta)
        rows.writeTo("ice.shop.clicks").partitionedBy(f.col("part")).create()
        numbered(spark, 0, 4, 9).writeTo("ice.shop.clicks").append()
        numbered(spark, 0, 5, 1).writeTo("ice.shop.clicks").overwritePartitions()
        for table in (f"delta.`{self.delta}`", "ice.shop.clicks"):
            spark.sql(f"DELETE FROM {table} WHERE part = 9 AND id = 3")
            spark.sql(
                f"MERGE INTO {table} t USING (SELECT * FROM VALUES (0L, 2), (2L, 2) AS s(id, part)) s"
                " ON t.id = s.id AND t.part = s.part"
                " WHEN MATCHED THEN UPDATE SET id = 1002 WHEN NOT MATCHED THEN INSERT *"
            )
        return {}

    def later(self, spark: SparkSession) -> None:
        numbered(spark, 0, 2, 7).write.format("delta").mode("append").save(self.delta)
        numbered(spark, 0, 2, 7).writeTo("ice.shop.clicks").append()


class Stream:
    """A streaming query to files, with a checkpoint beside them: it fails once, and goes on on `main`."""

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket

    def settings(self) -> dict[str, str]:
        return {}

    def drain(self, spark: SparkSession, name: str, breaks_at: int = -1) -> None:
        """Processes what has arrived, a file at a time, and stops."""
        rows = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", 1)
        value = f.when(f.col("id") == breaks_at, f.raise_error(f.lit("broken on purpose")))
        query = (
            rows.parquet(f"s3a://{self.bucket}/in")
            .select(value.otherwise(f.col("id")).cast("long").alias("id"))
            .writeStream.format("parquet")
            .option("checkpointLocation", f"s3a://{self.bucket}/checkpoint-{name}")
            .trigger(availableNow=True)
            .start(f"s3a://{self.bucket}/out-{name}")
        )
        query.awaitTermination()

    def arrive(self, spark: SparkSession, begin: int, end: int) -> None:
        spark.range(begin, end, 1, 2).write.mode("append").parquet(f"s3a://{self.bucket}/in")

    def sessions(self, spark: SparkSession) -> dict[str, SparkSession]:
        sessions = {name: spark.newSession() for name in CHECKPOINTS}
        sessions["uploaded"].conf.set("spark.sql.streaming.checkpointFileManagerClass", BY_UPLOAD)
        return sessions

    def read(self, spark: SparkSession) -> dict[str, Any]:
        return {
            name: sorted(row[0] for row in spark.read.parquet(self.out(name)).collect())
            for name in CHECKPOINTS
        }

    def out(self, name: str) -> str:
        return f"s3a://{self.bucket}/out-{name}"

    def write(self, spark: SparkSession) -> dict[str, Any]:
        sessions = self.sessions(spark)
        self.arrive(spark, 0, 10)
        for name, session in sessions.items():
            self.drain(session, name)
        self.arrive(spark, 10, 20)
        broken = []
        for name, session in sessions.items():
            try:
                self.drain(session, name, breaks_at=19)
            except StreamingQueryException:
                broken.append(name)
            self.drain(session, name)
        return {"broken": broken}

    def later(self, spark: SparkSession) -> None:
        self.arrive(spark, 20, 30)
        for name, session in self.sessions(spark).items():
            self.drain(session, name)


KINDS = {"committers": Committers, "tables": Tables, "stream": Stream}


def main() -> None:
    kind, jars, tables, bucket, repository, branch = sys.argv[1:]
    job: Any = KINDS[kind](bucket)
    lake = Lake(os.environ["LAKE_ENDPOINT"], *json.loads(os.environ["SESSION_KEY"]))
    spark = spark_session(
        kind,
        lake,
        Path(jars),
        further_jars=sorted(Path(tables).glob("*.jar")),
        settings={**job.settings(), "spark.sql.warehouse.dir": str(Path.cwd())},
    )
    try:
        told = {"steps": job.write(spark), "branch": job.read(spark)}
        tarn("commit", f"{repository}/{branch}", "-m", kind)
        tarn("merge", f"{repository}/{branch}", f"{repository}/main")
        spark = become(spark, lake_of_main())
        told["main"] = job.read(spark)
        if hasattr(job, "later"):
            job.later(spark)
            told["later"] = job.read(spark)
    finally:
        spark.stop()
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
