"""The server that tests of REST clients talk to."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from typing import Final

__all__ = ["RestServer"]

_NUMBERS: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class RestServer:
    """A server of lakeFS's REST API.

    Attributes:
        name: `tarn`, or `lakefs` for the real one.
        url: its address, without `/api/v1`.
        access_key_id: key id of the admin.
        secret_access_key: secret of the admin.
        bucket_endpoint: address of the S3 server with its blocks, if a test reads them.
    """

    name: str
    url: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    bucket_endpoint: str = ""

    @staticmethod
    def new_name(what: str) -> str:
        """Returns a name that no other test uses."""
        return f"{what}-{os.getpid()}-{next(_NUMBERS)}"
