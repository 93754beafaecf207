"""The S3 operations, one module per family, and the table that joins them to the router's names.

An operation is a function `(backend, asked) -> Response`. When it is called, the signature is verified,
the caller is allowed what the address names, and no byte of the body has been read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from tarn_gateway.asked import Asked
from tarn_gateway.backend import Backend
from tarn_gateway.http import Response
from tarn_gateway.operations import (
    buckets,
    completing,
    copying,
    deleting,
    listing,
    parts,
    reading,
    uploads,
    writing,
)
from tarn_gateway.router import Operation

__all__ = ["OPERATIONS", "Perform"]

Perform = Callable[[Backend, Asked], Awaitable[Response]]

OPERATIONS: Mapping[Operation, Perform] = MappingProxyType(
    {
        Operation.LIST_BUCKETS: buckets.list_buckets,
        Operation.HEAD_BUCKET: buckets.head_bucket,
        Operation.GET_BUCKET_LOCATION: buckets.get_bucket_location,
        Operation.GET_BUCKET_VERSIONING: buckets.get_bucket_versioning,
        Operation.LIST_OBJECTS: listing.list_objects,
        Operation.LIST_OBJECTS_V2: listing.list_objects_v2,
        Operation.LIST_MULTIPART_UPLOADS: uploads.list_multipart_uploads,
        Operation.DELETE_OBJECTS: deleting.delete_objects,
        Operation.GET_OBJECT: reading.get_object,
        Operation.HEAD_OBJECT: reading.head_object,
        Operation.PUT_OBJECT: writing.put_object,
        Operation.COPY_OBJECT: copying.copy_object,
        Operation.DELETE_OBJECT: deleting.delete_object,
        Operation.CREATE_MULTIPART_UPLOAD: uploads.create_multipart_upload,
        Operation.UPLOAD_PART: parts.upload_part,
        Operation.UPLOAD_PART_COPY: parts.upload_part_copy,
        Operation.COMPLETE_MULTIPART_UPLOAD: completing.complete_multipart_upload,
        Operation.ABORT_MULTIPART_UPLOAD: uploads.abort_multipart_upload,
        Operation.LIST_PARTS: uploads.list_parts,
    }
)
