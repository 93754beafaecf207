"""DuckDB's httpfs: `python duckdb_round_trip.py ENDPOINT BUCKET ROOT`.

The extension comes as a wheel. DuckDB loads it only if DuckDB's own key has signed it.
"""

import os
import sys
from pathlib import Path

import duckdb
import duckdb_extension_httpfs

endpoint, bucket, root = sys.argv[1:]
(extension,) = Path(duckdb_extension_httpfs.__file__).parent.rglob("httpfs.duckdb_extension")
lake = duckdb.connect()
lake.load_extension(str(extension))
lake.execute(
    f"""CREATE SECRET (
        TYPE s3,
        ENDPOINT '{endpoint.removeprefix("http://")}',
        URL_STYLE 'path',
        USE_SSL false,
        REGION 'us-east-1',
        KEY_ID '{os.environ["AWS_ACCESS_KEY_ID"]}',
        SECRET '{os.environ["AWS_SECRET_ACCESS_KEY"]}'
    )"""
)
lake.execute("SET s3_uploader_max_filesize = '50GB'")  # parts of 5 MB
at = f"s3://{bucket}/{root}duck"
rows = "SELECT range AS n, hash(range) AS h FROM range(1_000_000)"
lake.execute(f"COPY ({rows}) TO '{at}/large.parquet' (COMPRESSION uncompressed)")
found = lake.execute(f"SELECT count(*), sum(n) FROM '{at}/large.parquet'").fetchone()
assert found == (1_000_000, sum(range(1_000_000))), found
one = f"SELECT h = hash(n) FROM '{at}/large.parquet' WHERE n = 777_777"
assert lake.execute(one).fetchall() == [(True,)]
days = "SELECT n, n % 2 AS day FROM range(10) days(n)"
lake.execute(f"COPY ({days}) TO '{at}/days' (FORMAT parquet, PARTITION_BY day)")
files = [file for (file,) in lake.execute(f"FROM glob('{at}/days/*/*')").fetchall()]
assert [file.split("/")[-2] for file in sorted(files)] == ["day=0", "day=1"], files
odd = f"SELECT sum(n) FROM read_parquet('{at}/days/*/*', hive_partitioning = true) WHERE day = 1"
assert lake.execute(odd).fetchone() == (25,)
told = ""
try:
    lake.execute(f"FROM read_parquet('{at}/none.parquet')")
except duckdb.Error as error:
    told = str(error)
assert "404" in told, told
