"""S3 requests without a signature: who they are in logs, and what they may do.

They may read what a bucket view shows that is marked public-read (docs/design/bucket-views.md), and nothing else.
"""

from __future__ import annotations

from typing import Final

from tarn.core.access.actions import Action, ref_object_resource, repository_resource
from tarn.core.access.policy import Grant, Statement, compile_policy
from tarn.core.ids import UserId

__all__ = ["ANONYMOUS", "anonymous_grant", "reader_grant"]

ANONYMOUS: Final = UserId("anonymous")
"""The name of all of them in logs, quotas and listings. No user can be created with it."""


def anonymous_grant(caller_token: str) -> Grant:
    """Returns the grant of an anonymous request: it allows nothing.

    Args:
        caller_token: of the gateway that received the request, and makes its calls.
    """
    return Grant(ANONYMOUS, compile_policy(()), caller_token, 0)


def reader_grant(repository: str, ref: str) -> Grant:
    """Returns the grant of anonymous requests through a public-read view of a ref: to read its objects, and the record
    of the repository, which tells gateways where the bytes are.

    Raises:
        TarnError: INVALID for a name with a slash.
    """
    resources = (repository_resource(repository), ref_object_resource(repository, ref, "*"))
    statement = Statement(True, (Action.READ_REPO,), resources)
    return Grant(ANONYMOUS, compile_policy((statement,)), "", 0)
