"""Queues with known formulas. All times are in seconds, all rates per second.

Sources: the Erlang C formula, and the approximation of Allen and Cunneen for M/G/k, which is exact for M/M/k and for
M/G/1 (A. O. Allen, *Probability, Statistics, and Queueing Theory*, 2nd ed. 1990, chapter 5); Little's law; the cycle of
a server with gated service (H. Takagi, *Analysis of Polling Systems*, 1986), with one queue.
"""

from __future__ import annotations

from math import inf

__all__ = ["batch_size", "erlang_c", "in_system", "mean_wait_s"]


def erlang_c(servers: int, load: float) -> float:
    """Returns the probability that an arrival has to wait in M/M/k.

    Args:
        servers: k, at least one.
        load: arrival rate times service time, in servers; from `servers` on everybody waits.
    """
    if load >= servers:
        return 1.0
    blocked = 1.0  # Erlang B by its recursion, which does not overflow
    for number in range(1, servers + 1):
        blocked = load * blocked / (number + load * blocked)
    return blocked / (1 - load / servers * (1 - blocked))


def mean_wait_s(servers: int, arrivals: float, service_s: float, variation: float = 1.0) -> float:
    """Returns the mean time in the queue of M/G/k, without the service; infinite if it cannot keep up.

    Args:
        servers: k.
        arrivals: of all servers together.
        service_s: mean service time.
        variation: squared coefficient of variation of the service time; 1: exponential, 0: constant.
    """
    load = arrivals * service_s
    if load >= servers:
        return inf
    return erlang_c(servers, load) * service_s / (servers - load) * (1 + variation) / 2


def in_system(arrivals: float, time_s: float) -> float:
    """Returns how many are in a system on average (Little's law)."""
    return arrivals * time_s


def batch_size(arrivals: float, fixed_s: float, each_s: float) -> float:
    """Returns the mean size of a batch of a loop that takes all that came during its last round; at least one.

    A round takes `fixed_s`, and `each_s` for each item of it. In equilibrium as many come as the last round served:
    n = arrivals * (fixed_s + n * each_s).
    """
    left = 1 - arrivals * each_s
    return inf if left <= 0 else max(1.0, arrivals * fixed_s / left)
