"""s3fs, and pandas' and polars' way to it: `python s3fs_round_trip.py ENDPOINT BUCKET ROOT`."""

import sys
from urllib.request import urlopen

import s3fs

endpoint, bucket, root = sys.argv[1:]
lake = s3fs.S3FileSystem(
    endpoint_url=endpoint,
    client_kwargs={"region_name": "us-east-1"},
    config_kwargs={"signature_version": "s3v4"},  # also of presigned URLs
)
at = f"{bucket}/{root}fs"
large = bytes(range(256)) * (12 * 4096)

with lake.open(f"{at}/large", "wb", block_size=5 << 20) as file:
    file.write(large)
assert lake.info(f"{at}/large")["size"] == len(large)
with lake.open(f"{at}/large", "rb") as file:
    file.seek(255)
    assert file.read(2) == b"\xff\x00"
lake.pipe({f"{at}/d/{number}": b"x" * number for number in range(1, 6)})
assert sorted(lake.find(at)) == [*(f"{at}/d/{number}" for number in range(1, 6)), f"{at}/large"]
assert sorted(lake.ls(at, detail=False)) == [f"{at}/d", f"{at}/large"]
assert lake.isdir(f"{at}/d")
assert not lake.exists(f"{at}/none")
lake.copy(f"{at}/large", f"{at}/copy")
lake.mv(f"{at}/copy", f"{at}/moved")
assert lake.cat_file(f"{at}/moved", start=0, end=4) == bytes(range(4))
with lake.open(f"{at}/d/3", "ab") as file:
    file.write(b"y")
assert lake.cat(f"{at}/d/3") == b"xxxy"
with urlopen(lake.sign(f"{at}/d/3", expiration=60), timeout=30) as answer:
    assert answer.read() == b"xxxy"
lake.rm(at, recursive=True)
lake.invalidate_cache()
assert not lake.exists(f"{at}/large")
try:
    lake.cat(f"{at}/large")
except FileNotFoundError:
    pass
else:
    raise AssertionError("a removed object was read")
