"""The sections of the limits of repositories and users; see `tarn.config.sections` and docs/design/quotas.md."""

from __future__ import annotations

from dataclasses import dataclass

from tarn.config.setting import setting
from tarn.config.values import Number

__all__ = ["Quotas", "RepositoryQuota", "UserQuota"]

_COUNT_MAX = 1_000_000_000_000
_AS = "of each repository for which `tarn quota set` has set no limits; 0: no limit"
_USER = "of each user for whom `tarn quota set` has set no limits; 0: no limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryQuota:
    """Limits of each repository for which none were set."""

    staged_objects: int = setting("0", f"Most uncommitted objects {_AS}.", Number(0, _COUNT_MAX))
    staged_size_bytes: int = setting("0", f"Most bytes of uncommitted objects {_AS}.")
    branches: int = setting("0", f"Most branches {_AS}.", Number(0, _COUNT_MAX))
    uploads: int = setting("0", f"Most open uploads {_AS}.", Number(0, _COUNT_MAX))
    requests_per_second: int = setting(
        "0", f"Most S3 requests per second {_AS}.", Number(0, _COUNT_MAX)
    )
    bytes_per_second: int = setting(
        "0", f"Most bytes of bodies per second {_AS}.", Number(0, _COUNT_MAX)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UserQuota:
    """Limits of each user for whom none were set."""

    requests_per_second: int = setting(
        "0", f"Most S3 requests per second {_USER}.", Number(0, _COUNT_MAX)
    )
    bytes_per_second: int = setting(
        "0", f"Most bytes of bodies per second {_USER}.", Number(0, _COUNT_MAX)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Limits of repositories and users."""

    gateways: int = setting(
        "1",
        "Gateway processes that share the requests: each enforces this fraction of a rate. `tarn up` counts its "
        "workers by itself.",
        Number(1, 10_000),
    )
    repository: RepositoryQuota
    user: UserQuota
