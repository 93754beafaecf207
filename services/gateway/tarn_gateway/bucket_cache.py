"""Resolves bucket names: a name belongs to a repository, whose keys begin with a ref, or to a view of one ref
(docs/design/bucket-views.md).

What is cached here is a guess. Every call to graveler for a request through a view carries the version of the view
(`Call.bucket`), which graveler confirms by a read that is sent during the request. A name that is cached as that of a
repository is confirmed by the repository itself: graveler does not know it if a view has the name by now.
"""

from __future__ import annotations

from functools import partial

from tarn.aio.single_flight import FlightTimeoutError, SingleFlight
from tarn.aio.ttl_cache import TtlCache
from tarn.client.graveler import GravelerClient
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.value import hot_value
from tarn.objects.backend import VIEW_MOVED
from tarn.rpc.wire.call import Call
from tarn.telemetry.meters import Meters

__all__ = ["MAY_HAVE_MOVED", "BucketCache", "Place"]

_TTL_S = 5.0
_PLACES_MAX = 4096

MAY_HAVE_MOVED = VIEW_MOVED | {Reason.REPOSITORY_NOT_FOUND}
"""Reasons of refusals after which a name may belong to something else than the cache says."""


@hot_value
class Place:
    """What a bucket name stands for in one request.

    Attributes:
        repository: the repository of its objects.
        ref: the ref that a view shows; empty for the name of a repository, where each key begins with a ref.
        version: names the view and its version, for `Call.bucket`; empty for the name of a repository.
        is_public: whether anonymous requests may read what the view shows.
    """

    repository: str
    ref: str = ""
    version: str = ""
    is_public: bool = False

    @property
    def root(self) -> str:
        """What a key of the bucket lacks that a key of the repository has: `<ref>/`, or nothing."""
        return f"{self.ref}/" if self.ref else ""


class BucketCache:
    """A small cache over `GravelerClient.get_bucket_view`.

    Attributes:
        cached: returns what a name stood for some seconds ago; None if that is not known.
    """

    def __init__(self, graveler: GravelerClient, clock: Clock, *, ttl_s: float = _TTL_S) -> None:
        self._graveler = graveler
        self._clock = clock
        self._ttl_s = ttl_s
        self._places: TtlCache[str, Place] = TtlCache(clock, _PLACES_MAX)
        self.cached = self._places.get
        self._misses = 0
        # A read that began before a refusal may say the same as the cache: no further caller joins it.
        self._forgotten = 0
        self._reads: SingleFlight[tuple[str, int], Place] = SingleFlight(_error_for_waiters)

    def register(self, meters: Meters) -> None:
        """Registers the counts of look-ups."""
        meters.sample("cache.lookups", lambda: self._places.hits, cache="bucket", outcome="hit")
        meters.sample("cache.lookups", lambda: self._misses, cache="bucket", outcome="miss")

    async def shared(self, call: Call, name: str) -> Place:
        """Returns what `fresh` does, or what the read of another caller says that is under way: so the end of a cached
        name costs one call, however many requests there are. What was refused before this call is not returned.

        Raises:
            TarnError: errors of the call; DEADLINE: the other caller's read takes too long.
        """
        work = partial(self.fresh, call, name)
        try:
            return await self._reads.run(
                (name, self._forgotten), work, timeout_s=call.remaining(self._clock)
            )
        except FlightTimeoutError:
            text = f"request {call.request_id} ran out of time waiting for the bucket {name}"
            raise TarnError(Kind.DEADLINE, Reason.DEADLINE_EXCEEDED, text) from None

    async def fresh(self, call: Call, name: str) -> Place:
        """Returns what a name stands for, by a read that is sent now. A name of nothing is taken for a repository's.

        Args:
            call: of the request's caller, with the proof of this gateway.
            name: a valid bucket name.

        Raises:
            TarnError: errors of the call.
        """
        self._misses += 1
        self._places.pop(name)
        begin = self._clock.monotonic()
        place = Place(name)
        try:
            view = await self._graveler.get_bucket_view(call, name)
        except TarnError as error:
            # A replica of the last release has no views.
            if error.reason is not Reason.BUCKET_NOT_FOUND and error.kind is not Kind.UNIMPLEMENTED:
                raise
        else:
            place = Place(
                view.repository_id, view.ref, f"{view.bucket_id}:{view.etag}", view.public_read
            )
        self._places.put(name, place, begin + self._ttl_s)
        return place

    def forget(self, name: str) -> None:
        """Drops what a refusal showed to be old, also in answers that are under way."""
        self._forgotten += 1
        self._places.pop(name)


def _error_for_waiters(error: Exception) -> Exception | None:
    """Returns the error for other callers of one read. None: each asks for itself, as after a refusal of the first
    one's token, or its deadline."""
    if isinstance(error, TarnError) and error.kind is Kind.UNAVAILABLE:
        return error.again()
    return None
