"""Blocks in buckets of an S3 server.

`open_s3` opens a store. Bodies go through `obstore`; what it does not offer (multipart calls, listing with
any prefix, batches of deletes) goes through boto3 in threads of its own.
"""

from tarn.block.s3.opening import open_s3
from tarn.block.s3.settings import S3Limits, S3Settings
from tarn.block.s3.store import S3BlockStore

__all__ = ["S3BlockStore", "S3Limits", "S3Settings", "open_s3"]
