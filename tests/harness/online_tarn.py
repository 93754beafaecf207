"""A Tarn with online deletion after a second."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from running_tarn import RunningTarn, running_tarn

__all__ = ["online_tarn", "outcomes", "until_judged"]

CONFIG = "lifecycle:\n  online:\n    enabled: true\n    delay: 1s\n"
PATIENCE_S = 60.0


@contextmanager
def online_tarn(folder: Path, form: str) -> Iterator[RunningTarn]:
    """One replica with online deletion after a second."""
    file = folder / "tarn.yaml"
    file.write_text(CONFIG)
    with running_tarn(folder, form, "--config", str(file), "--workers", "1") as running:
        yield running


def outcomes(tarn: RunningTarn) -> dict[str, float]:
    """Returns `tarn_online_rows_total` by outcome, over all processes."""
    found: dict[str, float] = {}
    for address in tarn.state()["admin_addresses"].values():
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            page = answer.read().decode()
        for line in page.splitlines():
            if line.startswith("tarn_online_rows_total{"):
                labels, _, value = line.rpartition(" ")
                name = labels.partition('outcome="')[2].partition('"')[0]
                found[name] = found.get(name, 0.0) + float(value)
    return found


def until_judged(tarn: RunningTarn) -> dict[str, float]:
    """Waits until nothing is queued any more."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = outcomes(tarn)
        if found["queued"] and sum(found.values()) >= 2 * found["queued"]:
            return found
        time.sleep(0.2)
    raise AssertionError(f"rows are still queued after {PATIENCE_S} s: {outcomes(tarn)}")
