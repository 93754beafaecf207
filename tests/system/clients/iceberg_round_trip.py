"""pyiceberg with a catalog in a file: `python iceberg_round_trip.py ENDPOINT BUCKET ROOT CATALOG`.

The metadata of a table names its files by absolute addresses, `s3://<bucket>/…`.
"""

import os
import sys

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

endpoint, bucket, root, file = sys.argv[1:]
catalog = SqlCatalog(
    "lake",
    uri=f"sqlite:///{file}",
    warehouse=f"s3://{bucket}/{root}warehouse",
    **{
        "s3.endpoint": endpoint,
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "s3.region": "us-east-1",
    },
)
rows = pa.table({"day": ["a", "a", "b"], "n": [1, 2, 3]})
catalog.create_namespace("shop")
table = catalog.create_table("shop.clicks", rows.schema)
table.append(rows)
first = table.current_snapshot().snapshot_id
table.append(rows)
table.delete("day = 'b'")
table = catalog.load_table("shop.clicks")
assert table.scan().to_arrow().num_rows == 4
assert table.scan(snapshot_id=first).to_arrow().num_rows == 3
table.overwrite(rows)
assert table.scan().to_arrow().num_rows == 3
assert catalog.load_table("shop.clicks").location().startswith(f"s3://{bucket}/{root}")
catalog.purge_table("shop.clicks")
