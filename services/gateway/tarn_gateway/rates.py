"""What the gateway answers to a request that a rate refuses (`tarn.gate.rates`)."""

from __future__ import annotations

from tarn.gate.rates import RateLimits, RateRefusal, retry_after_s
from tarn_gateway.s3error import S3Error

__all__ = ["RateExceededError", "admit"]


class RateExceededError(S3Error):
    """SlowDown: a rate refuses the request. A store that is overloaded has the same code, but is a failure.

    Attributes:
        throttled_by: the kind of the quota, and its limit: one of `RATES`.
    """

    def __init__(self, refusal: RateRefusal) -> None:
        headers = {"Retry-After": str(retry_after_s(refusal.wait_s))}
        super().__init__("SlowDown", refusal.text, headers=headers, Limit=refusal.limit)
        self.throttled_by = (refusal.kind, refusal.limit)


def admit(rates: RateLimits, user_id: str, repository_id: str) -> None:
    """Takes a request from the rates of its user and its repository.

    Raises:
        RateExceededError: with the limit and the time after which to try again. Nothing was taken then.
    """
    if (refusal := rates.take(user_id, repository_id)) is not None:
        raise RateExceededError(refusal)
