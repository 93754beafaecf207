"""Asks a running lakeFS for what its bucket does not tell: a dump of refs, the default branch, protected branches."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tarn.core.change_kind import ChangeKind
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.rules import PATTERN_BYTES_MAX, Protection

__all__ = ["PeerServer", "protections_of"]

_ANSWER_BYTES_MAX: Final = 1 << 20
_TIMEOUT_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 1.0
_POLLS_MAX: Final = 86_400
_BLOCKED: Final = frozenset({ChangeKind.WRITE, ChangeKind.COMMIT, ChangeKind.FORCE})
"""What lakeFS refuses on a protected branch; the same as Tarn's REST interface makes of its rules."""
_NOT_IN_PATTERNS: Final = frozenset("[]{}\\")


def protections_of(patterns: list[str]) -> tuple[Protection, ...]:
    """Returns Tarn's protections for the patterns of branches that lakeFS protects.

    Raises:
        TarnError: INVALID: Tarn has no such pattern.
    """
    for each in patterns:
        if not 1 <= len(each.encode()) <= PATTERN_BYTES_MAX or _NOT_IN_PATTERNS & set(each):
            text = (
                f"the protected branches {each[:80]!a} cannot be protected by one pattern in Tarn, which has '*' and "
                f"'?', and at most {PATTERN_BYTES_MAX} bytes; replace the rule in lakeFS, or import by --refs"
            )
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
    return tuple(Protection(each, _BLOCKED) for each in sorted(set(patterns)))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would take the key to another server."""

    def redirect_request(self, *_: object) -> None:
        return None


class PeerServer:
    """A running lakeFS. Its methods wait for answers: call them outside of an event loop, or in a thread.

    Args:
        url: `https://lakefs.example.com`, with or without `/api/v1`.
        access_key_id, secret_access_key: a key pair of lakeFS.
        repository: the repository.
    """

    def __init__(
        self, url: str, access_key_id: str, secret_access_key: str, repository: str
    ) -> None:
        if not url.startswith(("http://", "https://")):
            text = f"{url[:80]!a} is no address of a server; give http:// or https://"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        base = url.rstrip("/").removesuffix("/api/v1")
        self._base = f"{base}/api/v1/repositories/{urllib.parse.quote(repository, safe='')}"
        pair = f"{access_key_id}:{secret_access_key}".encode()
        self._headers = {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        self._opener = urllib.request.build_opener(_NoRedirects)

    def _ask(self, path: str, method: str = "GET") -> Any:  # noqa: ANN401 - JSON
        request = urllib.request.Request(self._base + path, headers=self._headers, method=method)  # noqa: S310
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                body = answer.read(_ANSWER_BYTES_MAX + 1)
            if len(body) > _ANSWER_BYTES_MAX:
                raise ValueError(f"the answer has more than {_ANSWER_BYTES_MAX} bytes")
            return json.loads(body)
        except urllib.error.HTTPError as error:
            with error:
                why = error.read(500).decode(errors="replace")
            text = f"lakeFS answers {method} {self._base}{path} with {error.code}: {why}"
            kind = Kind.DENIED if error.code in (401, 403) else Kind.FAILED_PRECONDITION
            raise TarnError(kind, Reason.PRECONDITION_FAILED, text) from error
        except (OSError, ValueError, RecursionError) as error:
            text = f"lakeFS does not answer {method} {self._base}{path}: {error}"
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text) from error

    def _fields(self, path: str, method: str = "GET") -> Mapping[str, Any]:
        found = self._ask(path, method)
        if not isinstance(found, dict):
            raise self._odd(path)
        return found

    def _odd(self, path: str) -> TarnError:
        text = f"the answer of {self._base}{path} is not one of lakeFS; check the address"
        return TarnError(Kind.FAILED_PRECONDITION, Reason.PRECONDITION_FAILED, text)

    def place(self) -> tuple[str, str]:
        """Returns the storage namespace of the repository, and its default branch."""
        found = self._fields("")
        try:
            return str(found["storage_namespace"]), str(found["default_branch"])
        except KeyError as error:
            raise self._odd("") from error

    def protected(self) -> list[str]:
        """Returns the patterns of protected branches."""
        path = "/settings/branch_protection"
        try:
            return [str(each["pattern"]) for each in self._ask(path)]
        except (KeyError, TypeError) as error:
            raise self._odd(path) from error

    def has_uncommitted(self, branch: str) -> bool:
        """Whether a branch has uncommitted changes."""
        name = urllib.parse.quote(branch, safe="")
        return bool(self._fields(f"/branches/{name}/diff?amount=1").get("results"))

    async def dump(self, sleep: Callable[[float], Awaitable[None]]) -> str:
        """Dumps the refs into the bucket, and waits for the end; returns what `lakectl refs-dump` prints.

        Raises:
            TarnError: FAILED_PRECONDITION: the dump failed; DENIED; UNAVAILABLE.
        """
        task = urllib.parse.quote(str(self._fields("/dump", "POST").get("id", "")), safe="")
        for _ in range(_POLLS_MAX):
            status = self._fields(f"/dump?task_id={task}")
            if status.get("done"):
                if status.get("error") or not status.get("refs"):
                    text = f"lakeFS could not dump its refs: {status.get('error')}"
                    raise TarnError(Kind.FAILED_PRECONDITION, Reason.PRECONDITION_FAILED, text)
                return json.dumps(status["refs"])
            await sleep(_POLL_SECONDS)
        text = "the dump of lakeFS's refs takes more than a day; make one by `lakectl refs-dump`, and give --refs"
        raise TarnError(Kind.DEADLINE, Reason.UNAVAILABLE, text)
