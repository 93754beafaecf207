"""A Spark job for `test_spark`: writes, overwrites and reads partitioned Parquet on a branch.

    python spark_round_trip.py JARS magic|classic REPOSITORY      (endpoint and key in the environment)

Prints one JSON object. It runs in its own process because S3A repeats some failed requests for minutes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import functions as f

from tarn_spark.session import Lake, spark_session


def main() -> None:
    jars, committer, repository = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    lake = Lake(*(os.environ[name] for name in ("LAKE_ENDPOINT", "LAKE_KEY", "LAKE_SECRET")))
    spark = spark_session("round trip", lake, jars, magic=committer == "magic")
    where = f"s3a://{repository}/main/table"
    try:
        rows = spark.range(20_000).withColumn("part", (f.col("id") % 5).cast("int"))
        rows.write.partitionBy("part").parquet(where)
        first = spark.read.parquet(where).agg(f.count("*"), f.sum("id")).first()
        rows.where("id < 100").write.mode("overwrite").partitionBy("part").parquet(where)
        second = spark.read.parquet(where).groupBy("part").count().orderBy("part").collect()
        appended = spark.range(7).withColumn("part", f.lit(9))
        appended.write.mode("append").partitionBy("part").parquet(where)
        third = spark.read.parquet(where).where("part = 9").count()
    finally:
        spark.stop()
    assert first is not None
    sys.stdout.write(
        json.dumps(
            {
                "first": list(first),
                "second": [[row["part"], row["count"]] for row in second],
                "third": third,
            }
        )
    )


if __name__ == "__main__":
    main()
