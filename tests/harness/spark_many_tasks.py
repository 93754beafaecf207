"""A Spark job for `test_spark`: many small tasks, with the classic committer, which renames each file twice.

    python spark_many_tasks.py JARS REPOSITORY TASKS      (endpoint and key in the environment)

Prints the number and the sum of the rows that it reads back.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import functions as f

from tarn_spark.session import Lake, spark_session


def main() -> None:
    jars, repository, tasks = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    lake = Lake(*(os.environ[name] for name in ("LAKE_ENDPOINT", "LAKE_KEY", "LAKE_SECRET")))
    spark = spark_session("many tasks", lake, jars, magic=False)
    where = f"s3a://{repository}/main/table"
    try:
        spark.range(0, tasks, 1, tasks).write.parquet(where)
        told = spark.read.parquet(where).agg(f.count("*"), f.sum("id")).first()
    finally:
        spark.stop()
    assert told is not None
    sys.stdout.write(json.dumps(list(told)))


if __name__ == "__main__":
    main()
