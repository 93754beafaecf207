"""A real Tarn whose times of collections are short."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from running_tarn import RunningTarn, launch, set_up, stop, wait_until_up

__all__ = ["GRACE_S", "LEASE_S", "eager_tarn", "fsck"]

EAGER = Path(__file__).parent / "eager_collections"
GRACE_S = 1.0
LEASE_S = 5.0
"""Runs must renew it, or be shorter."""


@contextmanager
def eager_tarn(
    folder: Path, form: str, *options: str, lease_s: float = LEASE_S
) -> Iterator[RunningTarn]:
    """Starts a Tarn whose marks judge all blocks older than a second, and may be swept a second later.

    Args:
        folder: its data, in a folder `data`, and its credentials.
        form: `single` or `separate`.
        options: more options of `tarn up`.
        lease_s: length of a lease.
    """
    processes = ("--separate",) if form == "separate" else ("--workers", "2")
    environment = {
        "PYTHONPATH": str(EAGER),
        "COLLECTION_CUTOFF_S": "1",
        "COLLECTION_GRACE_S": str(GRACE_S),
        "COLLECTION_LEASE_S": str(lease_s),
    }
    supervisor = launch(
        folder / "data",
        *("--port", "0", "--rpc-port", "0", *processes, *options),
        environment=environment,
    )
    tarn = RunningTarn(form, folder / "data", folder / "credentials", supervisor)
    try:
        wait_until_up(tarn)
        set_up(tarn)
        yield tarn
    finally:
        stop(tarn)


def fsck(tarn: RunningTarn, *options: str) -> list[str]:
    """Returns the codes of the findings."""
    places = ("--data-dir", str(tarn.data), *options)
    done = tarn.cli("fsck", "--json", *places, "--verify-data", "--grace-hours", "0")
    assert done.code == 0, done.err
    return [finding["code"] for finding in json.loads(done.out)["findings"]]
