"""Blocks in buckets of an S3 server.

`open_s3` opens a store. Bodies are sent and read through `obstore`. The calls that it lacks (multipart, listing
with any prefix, batches of deletes) use boto3, in separate threads.
"""

from tarn.block.s3.opening import open_s3
from tarn.block.s3.settings import S3Limits, S3Settings
from tarn.block.s3.store import S3BlockStore

__all__ = ["S3BlockStore", "S3Limits", "S3Settings", "open_s3"]
