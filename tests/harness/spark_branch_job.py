"""A Spark job for `test_spark`: it works on a branch through a bucket, merges the branch, and goes on in `main`.

    python spark_branch_job.py JARS TABLES BUCKET REPOSITORY BRANCH

The bucket is a view of `main`. The session key in the variables `AWS_…` binds it to the branch. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from spark_tables import become, cpu_seconds, iceberg_in, lake_of_main, tarn

from tarn_spark.session import Lake, spark_session


def parts(spark: SparkSession, where: str) -> list[list[int]]:
    """Number and sum of the rows in each partition."""
    counted = spark.read.parquet(where).groupBy("part").agg(f.count("*"), f.sum("id"))
    return [list(row) for row in counted.orderBy("part").collect()]


def days(spark: SparkSession) -> list[list[Any]]:
    """Number of the rows of each day of the Iceberg table."""
    counted = spark.sql("SELECT day, count(*) FROM ice.shop.clicks GROUP BY day ORDER BY day")
    return [list(row) for row in counted.collect()]


def write(spark: SparkSession, where: str) -> dict[str, Any]:
    """Writes a Parquet table by all modes, and an Iceberg table."""
    rows = spark.range(20_000).withColumn("part", (f.col("id") % 5).cast("int"))
    rows.write.partitionBy("part").parquet(where)
    told: dict[str, Any] = {"written": parts(spark, where)}
    rows.where("id < 100").write.mode("overwrite").partitionBy("part").parquet(where)
    replaced = spark.range(1000, 1010).withColumn("part", f.lit(2)).write.mode("overwrite")
    replaced = replaced.option("partitionOverwriteMode", "dynamic")
    # The magic committer refuses this mode: docs/user/spark.md.
    replaced.option("fs.s3a.committer.name", "file").partitionBy("part").parquet(where)
    appended = spark.range(7).withColumn("part", f.lit(9)).write.mode("append")
    appended.partitionBy("part").parquet(where)
    told["parts"] = parts(spark, where)
    try:
        spark.read.parquet(f"{where}/part=10")
    except AnalysisException as error:
        told["of_nothing"] = error.getErrorClass()
    spark.sql(
        "CREATE TABLE ice.shop.clicks (id bigint, day string) USING iceberg PARTITIONED BY (day)"
    )
    spark.sql(
        "INSERT INTO ice.shop.clicks SELECT id, if(id < 6, 'may', 'june') FROM range(0, 10, 1, 1)"
    )
    spark.sql("DELETE FROM ice.shop.clicks WHERE day = 'june'")
    told["days"] = days(spark)
    return told


def main() -> None:
    jars, tables = Path(sys.argv[1]), Path(sys.argv[2])
    bucket, repository, branch = sys.argv[3:6]
    where = f"s3a://{bucket}/table"
    spark = spark_session(
        "branch job",
        Lake(os.environ["LAKE_ENDPOINT"]),
        jars,
        further_jars=sorted(tables.glob("tables/iceberg-*.jar")),
        settings={**iceberg_in(bucket), "spark.sql.shuffle.partitions": "1"},
    )
    try:
        told = write(spark, where)
        tarn("commit", f"{repository}/{branch}", "-m", "the job")
        tarn("merge", f"{repository}/{branch}", f"{repository}/main")
        main = become(spark, lake_of_main())
        told |= {"main_parts": parts(main, where), "main_days": days(main)}
        main.sql("INSERT INTO ice.shop.clicks VALUES (100, 'july')")
        told["main_later"] = days(main)
        told["cpu_seconds"] = cpu_seconds(spark)
    finally:
        spark.stop()
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
