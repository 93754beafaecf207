"""pyiceberg in a transaction, and afterwards: `python iceberg_on_branch.py write|read ENDPOINT BUCKET FILE`.

`write` makes a table, and writes the address of its metadata to the file. `read` registers that in another catalog,
reads the table and appends to it. The key comes from the variables `AWS_…`.
"""

import sys
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

step, endpoint, bucket, file = sys.argv[1:]
catalog = SqlCatalog(
    step,
    uri="sqlite:///:memory:",
    warehouse=f"s3://{bucket}/warehouse",
    **{"s3.endpoint": endpoint, "s3.region": "us-east-1"},
)
catalog.create_namespace("shop")
rows = pa.table({"day": ["a", "a", "b"], "n": [1, 2, 3]})
if step == "write":
    table = catalog.create_table("shop.clicks", rows.schema)
    table.append(rows)
    table.append(rows)
    table.delete("day = 'b'")
    Path(file).write_text(table.metadata_location)
else:
    table = catalog.register_table("shop.clicks", Path(file).read_text())
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [1, 1, 2, 2]
    table.append(rows)
    assert catalog.load_table("shop.clicks").scan().to_arrow().num_rows == 7
