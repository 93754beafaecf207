"""The state of S3 multipart uploads."""
