"""Links by which a browser downloads one object from the S3 endpoint (docs/design/web-interface.md, "Downloads").

Such a link is a presigned GET, signed with the key pair behind the caller's token: the gateway verifies it as any
other, and asks for the user's rights when the link is used. The signature covers the host, the path and the whole
query, so the link reads this object, as an attachment without a type, for `LIFE_S` seconds. Whoever calls chooses names
only; method, life and the kind of the answer are fixed here.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_path, parse_repository_id
from tarn.core.refs import parse_ref
from tarn_auth.authorizer import Authorizer

__all__ = ["LIFE_S", "DownloadLinks"]

LIFE_S: Final = 60
"""A browser follows the link at once. A download that has begun goes on."""

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_HOST: Final = re.compile(
    r"[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?"
)
_FILE_NAME_BYTES_MAX: Final = 1024


class DownloadLinks:
    """Signs links.

    Args:
        authorizer: finds the key pair of a caller token, and has the signing key of a day.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def sign(
        self,
        token: str,
        host: str,
        region: str,
        repository: str,
        ref: str,
        path: str,
        file_name: str,
    ) -> str:
        """Returns path and query of a link to an object, `/lake/main/a%20b?…&X-Amz-Signature=…`.

        Args:
            token: of the caller, whose key pair signs.
            host: of the S3 endpoint, as browsers send it.
            region: of the S3 endpoint.
            repository: of the object.
            ref: of the object.
            path: of the object.
            file_name: under which the browser stores it.

        Raises:
            TarnError: UNAUTHENTICATED, CALLER_TOKEN_INVALID; DENIED, ACCESS_DENIED: the token is that of a session key;
                INVALID, INVALID_ARGUMENT; errors of the store.
        """
        if not _HOST.fullmatch(host):
            text = f"host {host[:80]!r} must be a name or an address, with a port or without"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="host")
        if len(file_name.encode()) > _FILE_NAME_BYTES_MAX:
            text = f"file_name has more than {_FILE_NAME_BYTES_MAX} bytes"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="file_name")
        parse_ref(ref)
        key = f"/{parse_repository_id(repository)}/{ref}/{parse_path(path)}"
        key_id, now_s, signing_key = await self._authorizer.sign_for(token, region)
        time = datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{time[:8]}/{region}/s3/aws4_request"
        query = {
            "X-Amz-Algorithm": _ALGORITHM,
            "X-Amz-Credential": f"{key_id}/{scope}",
            "X-Amz-Date": time,
            "X-Amz-Expires": str(LIFE_S),
            "X-Amz-SignedHeaders": "host",
            "response-content-disposition": f"attachment; filename*=UTF-8''{quote(file_name, safe='')}",
            "response-content-type": "application/octet-stream",
        }
        # Byte order, as AWS sorts them: capital letters come first.
        pairs = "&".join(f"{name}={quote(value, safe='-._~')}" for name, value in query.items())
        quoted = quote(key, safe="/-._~")
        canonical = f"GET\n{quoted}\n{pairs}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"{_ALGORITHM}\n{time}\n{scope}\n{digest}"
        signature = hmac.new(signing_key, text.encode(), hashlib.sha256).hexdigest()
        return f"{quoted}?{pairs}&X-Amz-Signature={signature}"
