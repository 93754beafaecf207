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
frame.lazy().sink_csv(f"{at}/all.csv", storage_options=options)
assert pl.scan_csv(f"{at}/all.csv", storage_options=options).collect().height == 3
try:
    pl.read_parquet(f"{at}/none.parquet", storage_options=options)
except (FileNotFoundError, OSError, pl.exceptions.ComputeError):
    pass
else:
    raise AssertionError("a missing object was read")
