"""Signature Version 4: of a request, in headers or in a presigned URL, and of the chunks of its body."""
