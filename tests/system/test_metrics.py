"""A running Tarn emits every metric that the dashboard and the alerts use, and that the documentation lists."""

from __future__ import annotations

import re
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from dashboards import expressions, metric_names
from running_tarn import RunningTarn

from tarn.telemetry.metric_table import TABLE, Kind

pytestmark = pytest.mark.every_form

AFTER_FAULTS = {
    "tarn_kv_failed_total",
    "tarn_block_failed_total",
    "tarn_rpc_failed_total",
    "tarn_telemetry_dropped_series_total",
    "tarn_telemetry_skipped_samples_total",
}
"""They begin with the first fault. The tests of their parts make the faults and see them counted."""


def scrape(tarn: RunningTarn) -> dict[str, str]:
    """Returns the page of each process, by its name."""
    pages = {}
    for name, address in tarn.state()["admin_addresses"].items():
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            pages[name] = answer.read().decode()
    return pages


def families(pages: dict[str, str]) -> set[str]:
    """Returns the names of all metrics that have a value."""
    text = "\n".join(pages.values())
    names = set(re.findall(r"^(tarn_[a-z_]+)[{ ]", text, re.MULTILINE))
    return names | {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


def work(tarn: RunningTarn, repository: str, folder: Path) -> None:
    """Uses all that is measured: both sizes of objects, a commit, a compaction, a merge, an error."""
    s3 = tarn.s3()
    s3.put_object(Bucket=repository, Key="main/small", Body=b"small")
    s3.put_object(Bucket=repository, Key="main/large", Body=bytes(3 << 20))
    with suppress(ClientError):
        s3.get_object(Bucket=repository, Key="main/none")
    tarn.ok("commit", f"{repository}/main", "-m", "first")
    for key in ("small", "large"):
        s3.get_object(Bucket=repository, Key=f"main/{key}")["Body"].read()
    s3.list_objects_v2(Bucket=repository, Prefix="main/")
    s3.close()
    with urllib.request.urlopen(f"{tarn.state()['api']}/openapi.json", timeout=30) as answer:
        answer.read()
    tarn.ok("branch", "create", f"{repository}/side", "--from", "main")
    file = folder / "file"
    file.write_bytes(b"x")
    tarn.ok("fs", "upload", str(file), f"{repository}/side/x")
    tarn.ok("compact", f"{repository}/side")
    tarn.ok("commit", f"{repository}/side", "-m", "second")
    tarn.ok("merge", f"{repository}/side", f"{repository}/main", "-m", "third")
    tarn.ok("fs", "upload", str(file), f"{repository}/main/y")


def until(tarn: RunningTarn, wanted: set[str]) -> set[str]:
    """Returns the metrics, as soon as all wanted ones are there: the compactor learns of staged rows later."""
    for _ in range(100):
        found = families(scrape(tarn))
        if wanted <= found:
            return found
        time.sleep(0.2)
    return families(scrape(tarn))


def test_every_metric_is_emitted(tarn: RunningTarn, repository: str, tmp_path: Path) -> None:
    work(tarn, repository, tmp_path)
    documented = {metric.prometheus_name for metric in TABLE} - AFTER_FAULTS
    found = until(tarn, documented)
    assert documented - found == set()
    used = {name for _, query in expressions() for name in metric_names(query)}
    assert used - AFTER_FAULTS - found == set()


def test_the_numbers_are_those_of_the_requests(
    tarn: RunningTarn, repository: str, tmp_path: Path
) -> None:
    def total(name: str, labels: str) -> float:
        pattern = re.compile(rf"^{name}{{{labels}}} (\S+)$", re.MULTILINE)
        return sum(float(each) for page in scrape(tarn).values() for each in pattern.findall(page))

    s3 = tarn.s3(retries={"max_attempts": 0})
    counted = 'operation="PutObject",status="200"'
    before = total("tarn_gateway_requests_total", counted)
    commits = total("tarn_operation_phase_seconds_count", 'operation="commit",phase="publish"')
    for number in range(5):
        s3.put_object(Bucket=repository, Key=f"main/{number}", Body=b"x")
    s3.close()
    tarn.ok("commit", f"{repository}/main", "-m", "five")
    assert total("tarn_gateway_requests_total", counted) == before + 5
    after = total("tarn_operation_phase_seconds_count", 'operation="commit",phase="publish"')
    assert after == commits + 1


def test_every_process_emits_the_metrics_of_its_services_only(
    tarn: RunningTarn, repository: str, tmp_path: Path
) -> None:
    work(tarn, repository, tmp_path)
    metrics = {metric.prometheus_name: metric for metric in TABLE}
    for page in scrape(tarn).values():
        (service,) = re.findall(r'^tarn_build_info{service="([a-z]+)"', page, re.MULTILINE)
        services = {"gateway", "api", "graveler", "auth"} if service == "node" else {service}
        for name in families({"page": page}) & metrics.keys():
            processes = metrics[name].processes
            assert processes == "all" or services & set(processes.split(", ")), (service, name)
        assert {metrics[name].kind for name in families({"page": page}) & metrics.keys()} == set(
            Kind
        )
