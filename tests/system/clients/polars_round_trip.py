"""polars: `python polars_round_trip.py ENDPOINT BUCKET ROOT`."""

import os
import sys

import polars as pl

endpoint, bucket, root = sys.argv[1:]
options = {
    "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
    "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
    "aws_region": "us-east-1",
    "aws_endpoint_url": endpoint,
    "aws_allow_http": "true",
}
at = f"s3://{bucket}/{root}polars"
frame = pl.DataFrame({"day": ["a", "a", "b"], "n": [1, 2, 3]})
for day in ("a", "b"):
    frame.filter(pl.col("day") == day).write_parquet(f"{at}/{day}.parquet", storage_options=options)
total = pl.scan_parquet(f"{at}/*.parquet", storage_options=options).select(pl.col("n").sum())
assert total.collect().item() == 6
os.environ["POLARS_UPLOAD_CHUNK_SIZE"] = str(5 << 20)  # 64 MiB by default
large = pl.select(n=pl.int_range(2_000_000).shuffle(seed=1))
large.write_parquet(f"{at}/large", compression="uncompressed", storage_options=options)
rows = pl.scan_parquet(f"{at}/large", storage_options=options)
assert rows.select(pl.col("n").sum()).collect().item() == large["n"].sum()
assert (
    rows.slice(1_500_000, 3).collect()["n"].to_list() == large["n"][1_500_000:1_500_003].to_list()
)
frame.lazy().sink_csv(f"{at}/all.csv", storage_options=options)
assert pl.scan_csv(f"{at}/all.csv", storage_options=options).collect().height == 3
try:
    pl.read_parquet(f"{at}/none.parquet", storage_options=options)
except (FileNotFoundError, OSError, pl.exceptions.ComputeError):
    pass
else:
    raise AssertionError("a missing object was read")
