"""Written mutations of quotas and rates: likely mistakes with counts, snapshots and buckets. None of them is a guard of
the simulator.
"""

from collections.abc import Sequence
from typing import Final

from tests.mutants.applying import Written

__all__ = ["QUOTAS"]

_ADMISSION: Final = "tarn_graveler.usage.admission"
_USAGE: Final = "tarn_graveler.usage.usage"
_RECORDS: Final = "tarn_graveler.records.quotas"
_RATES: Final = "tarn.gate.rates"
_CORE: Final = "tarn.core.quota"

QUOTAS: Final[Sequence[Written]] = (
    # --- counts
    Written(
        "failed-writes-count-for-ever",
        _ADMISSION,
        "A write that was admitted and failed takes room for ever.",
        "    def __exit__(self, *_: object) -> None:\n        self",
        "    def __exit__(self, *error: object) -> None:\n        if error[0] is None:\n            self",
    ),
    Written(
        "changes-under-way-are-forgotten",
        _ADMISSION,
        "A count forgets admitted changes that it may have missed.",
        "begin, seen = self._clock.monotonic(), used.ended",
        "begin, seen = self._clock.monotonic(), used.added",
    ),
    Written(
        "refused-by-an-old-count",
        _ADMISSION,
        "A count that began before the request refuses it.",
        "if found is None or used.known > begun:",
        "if found is None or used.known >= begun:",
    ),
    Written(
        "room-takes-room",
        _ADMISSION,
        "The question whether there is room counts as an object.",
        "await self._admit(repository, limits, (1, 1, 0), (0, 0, 0))",
        "await self._admit(repository, limits, (1, 1, 0), (1, 1, 0))",
    ),
    Written(
        "exceeded-limits-refuse-all",
        _ADMISSION,
        "A limit that is exceeded refuses changes that use nothing of it.",
        "if limit and extra and used + extra > limit:",
        "if limit and used + extra > limit:",
    ),
    Written(
        "growing-tokens-are-kept",
        _USAGE,
        "The count of a token that takes writes is kept.",
        "is_sealed = token != branch.staging",
        "is_sealed = True",
    ),
    Written(
        "shrunk-listings-make-room",
        _USAGE,
        "A compacted listing with fewer bytes than its commit makes room for other branches.",
        "            max(0, after.object_bytes - before.object_bytes),\n",
        "            after.object_bytes - before.object_bytes,\n",
    ),
    # --- limits
    Written(
        "last-page-of-quotas",
        "tarn_graveler.handlers.quotas",
        "The second page of quotas begins with the last line of the first one.",
        "if _key(each) > after]",
        "if _key(each) >= after]",
    ),
    Written(
        "removed-quota-stays",
        _RECORDS,
        "A removed quota stays in force until the next reading.",
        "            self._known.pop((quota.kind, quota.name), None)\n",
        "            return\n",
    ),
    Written(
        "unread-quotas-are-none",
        _RECORDS,
        "Quotas that cannot be read limit nothing.",
        '                _log.warning(\n                    "quotas not read; the last',
        "                self._known = {}\n"
        '                _log.warning(\n                    "quotas not read; the last',
    ),
    Written(
        "full-table-is-fixed",
        _RECORDS,
        "A quota that is set cannot be changed once the most are set.",
        "            is_new = (quota.kind, quota.name) not in self._known\n",
        "            is_new = bool(quota.name)\n",
    ),
    # --- rates
    Written(
        "half-read-rates",
        _RATES,
        "A reading of the rates that fails at its second page drops those of later pages.",
        "            token = page.next_page_token\n",
        "            self._known = known\n            token = page.next_page_token\n",
    ),
    Written(
        "rates-save-for-ever",
        _CORE,
        "Tokens that were not used for an hour pass at once.",
        "self._tokens = min(self._most, self._tokens + (now - self._at) * self.rate)",
        "self._tokens += (now - self._at) * self.rate",
    ),
    Written(
        "debts-are-forgiven",
        _CORE,
        "Bytes beyond those that are saved cost nothing.",
        "        self._tokens -= cost\n",
        "        self._tokens = max(0.0, self._tokens - cost)\n",
    ),
    Written(
        "buckets-filled-at-each-reading",
        _RATES,
        "Each reading of the rates fills all buckets.",
        "        self._known = known\n        self._defaults",
        "        self._known = known\n        self._buckets = BoundedMap(_BUCKETS_MAX)\n        self._defaults",
    ),
    Written(
        "refused-requests-cost",
        _RATES,
        "A request that its repository refuses costs its user one.",
        '                return RateRefusal(kind, name, "bytes_per_second", rate, wait)\n'
        "        for _, found in of_names:\n"
        "            if found is not None and found.requests is not None:\n"
        "                found.requests.take(now, 1)\n",
        '                return RateRefusal(kind, name, "bytes_per_second", rate, wait)\n'
        "            if found.requests is not None:\n"
        "                found.requests.take(now, 1)\n",
    ),
    # --- tasks
    Written(
        "starts-without-records-have-ended",
        "tarn_graveler.tasks.quotas",
        "A task that is being started does not count as open.",
        "            if row is not None and _has_ended(row.value)\n",
        "            if row is None or _has_ended(row.value)\n",
    ),
    Written(
        "ended-tasks-of-other-days",
        "tarn_graveler.tasks.quotas",
        "Tasks of another day that have ended count as open.",
        "elsewhere += len(ids) - len(await self._ended(keys, other, ids))",
        "elsewhere += len(ids)",
    ),
)
