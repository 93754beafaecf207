"""Errors as pages: what happened, and what to do."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from tarn_api.errors import ApiError
from tarn_api.web import links
from tarn_api.web.page import Crumb, redirect, rendered

__all__ = ["failure", "wants_page"]

_TITLES: Final = MappingProxyType(
    {
        400: "This cannot be done",
        401: "You are not signed in",
        403: "You may not do this",
        404: "Not found",
        405: "This address takes no such request",
        408: "The upload was too slow",
        409: "The change was refused",
        410: "The data is gone",
        412: "There is something else already",
        413: "This is too large",
        429: "Too many requests",
        501: "Tarn does not offer this",
        503: "Tarn is busy",
    }
)
_OVERTAKEN: Final = (
    "Somebody else changed this meanwhile. Open the page again, look at what is there, and decide anew. "
    "Nothing was changed."
)
_ADVICE_OF: Final = MappingProxyType({"SETTINGS_CHANGED": _OVERTAKEN, "BUCKET_MOVED": _OVERTAKEN})
"""By the reason, if the status alone tells too little."""
_ADVICE: Final = MappingProxyType(
    {
        400: "Go back, correct it, and send it again. Nothing was changed.",
        401: "Sign in, and repeat what you did. Nothing was changed.",
        403: "If a permission or a rule is missing, ask an administrator. Nothing was changed.",
        404: "It may have been deleted or renamed meanwhile. Look for it from the first page.",
        409: "Look at the branch again, then decide anew.",
        412: "Look at what is there, then choose another name or allow that it is replaced.",
        429: "Wait a moment, and try again. Nothing was changed.",
        500: "If you sent a change, look whether it was made before you repeat it. "
        "An administrator finds this request in the log of the server.",
        503: "Try again in a moment. Nothing was changed.",
    }
)


def wants_page(request: Request) -> bool:
    """Whether whoever asks is a person in front of a browser, who gets an error as a page."""
    return "text/html" in request.headers.get("accept", "")


def failure(
    request: Request, error: ApiError, *, request_id: str, nonce: str, user: str
) -> Response:
    """Returns the answer to a request that failed. Without a session, a page leads to the sign-in and back."""
    if error.status == 401 and request.method == "GET":
        target = request.scope["raw_path"].decode("ascii", "replace")
        if query := request.scope["query_string"].decode("ascii", "replace"):
            target += f"?{query}"
        return redirect(links.to("sign-in", next=links.local_target(target)))
    title = _TITLES.get(error.status, "Something went wrong")
    page = rendered(
        "error.html",
        nonce,
        user=user,
        title=title,
        crumbs=[Crumb("Repositories", links.HOME), Crumb(title)],
        status=error.status,
        values={
            "message": error.message,
            "advice": _ADVICE_OF.get(error.reason) or _ADVICE.get(error.status, ""),
            "request_id": request_id,
            "status": error.status,
        },
    )
    for name, value in error.headers.items():
        page.headers[name] = value
    return page
