"""Signature Version 4: verifies requests (headers or presigned URL) and the chunks of their bodies."""
