"""A real Prometheus scrapes a running Tarn and evaluates every query of the dashboard and the alert rules.

Skipped where there is none; `make dashboards` gets one.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from dashboards import FOLDER, metric_names, panels
from running_tarn import RunningTarn

from tarn.telemetry.metric_table import TABLE, Kind

CACHE = Path(os.environ.get("TARN_CACHE") or Path.home() / ".cache" / "tarn")
PROMETHEUS = shutil.which("prometheus") or shutil.which(
    "prometheus", path=str(CACHE / "prometheus" / "usr" / "bin")
)
RULES_TEST = """\
rule_files: [{rules}]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - {{series: 'tarn_gateway_requests_total{{job="limited",status="200"}}', values: '0+100x20'}}
  - {{series: 'tarn_gateway_requests_total{{job="limited",status="503"}}', values: '0+50x20'}}
  - {{series: 'tarn_gateway_throttled_total{{job="limited",kind="user"}}', values: '0+30x20'}}
  - {{series: 'tarn_gateway_throttled_total{{job="limited",kind="repository"}}', values: '0+20x20'}}
  - {{series: 'tarn_gateway_requests_total{{job="failing",status="200"}}', values: '0+100x20'}}
  - {{series: 'tarn_gateway_requests_total{{job="failing",status="500"}}', values: '0+50x20'}}
  - {{series: 'tarn_gateway_throttled_total{{job="failing",kind="user"}}', values: '0+0x20'}}
  - {{series: 'tarn_gateway_requests_total{{job="older",status="200"}}', values: '0+100x20'}}
  - {{series: 'tarn_gateway_requests_total{{job="older",status="500"}}', values: '0+50x20'}}
  - {{series: 'tarn_api_requests_total{{job="refusing",operation="a",status="200"}}', values: '0+100x20'}}
  - {{series: 'tarn_api_requests_total{{job="refusing",operation="b",status="501"}}', values: '0+50x20'}}
  - {{series: 'tarn_api_requests_total{{job="failing",operation="a",status="200"}}', values: '0+100x20'}}
  - {{series: 'tarn_api_requests_total{{job="failing",operation="a",status="500"}}', values: '0+50x20'}}
  promql_expr_test:
  - expr: count by (job) (ALERTS{{alertname="TarnRestErrors",alertstate="firing"}})
    eval_time: 15m
    exp_samples: [{{labels: '{{job="failing"}}', value: 1}}]
  - expr: count by (job) (ALERTS{{alertname="TarnServerErrors",alertstate="firing"}})
    eval_time: 15m
    exp_samples: [{{labels: '{{job="failing"}}', value: 1}}, {{labels: '{{job="older"}}', value: 1}}]
"""
STARTS_LATER = {
    metric.prometheus_name
    for metric in TABLE
    if "repository" in metric.labels or (metric.labels and metric.kind is not Kind.GAUGE)
}
"""Their series begin with the first event, or with a repository that has uncommitted rows."""
CONFIG = """\
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
- job_name: tarn
  static_configs: [{{targets: [{targets}]}}]
"""


class Prometheus:
    """A server that scrapes admin ports."""

    def __init__(self, address: str) -> None:
        self._url = f"http://{address}/api/v1"

    def get(self, path: str, **values: str) -> Any:
        query = urllib.parse.urlencode(values)
        try:
            with urllib.request.urlopen(f"{self._url}/{path}?{query}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{values}: {error.read().decode()}") from error

    def query(self, text: str) -> list[dict[str, Any]]:
        """Returns the series of a query."""
        found: list[dict[str, Any]] = self.get("query", query=text)["result"]
        return found


@contextmanager
def prometheus(folder: Path, targets: list[str]) -> Iterator[Prometheus]:
    """Starts a server, and ends it."""
    assert PROMETHEUS is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = folder / "prometheus.yaml"
    named = ", ".join(f'"{target}"' for target in targets)
    config.write_text(CONFIG.format(rules=FOLDER / "alerts.yaml", targets=named))
    command = [
        *(sys.executable, "-m", "tarn_cli.node.lifeline", str(os.getpid()), PROMETHEUS),
        *(f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"),
        f"--web.listen-address={address}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        server = Prometheus(address)
        _wait_until_scraped(server, len(targets), folder / "log")
        yield server
    finally:
        process.terminate()
        process.wait(10)


def _wait_until_scraped(server: Prometheus, targets: int, log: Path) -> None:
    for _ in range(150):
        try:
            found = server.query("count_over_time(up[1m]) >= 3 and up == 1")
        except (OSError, AssertionError):
            found = []
        if len(found) == targets:
            return
        time.sleep(0.1)
    raise AssertionError(f"not all processes were scraped:\n{log.read_text()[-2000:]}")


def work(tarn: RunningTarn, repository: str, body: bytes) -> None:
    s3 = tarn.s3()
    for number in range(3):
        s3.put_object(Bucket=repository, Key=f"main/{number}", Body=body)
    s3.get_object(Bucket=repository, Key="main/0")["Body"].read()
    s3.delete_objects(Bucket=repository, Delete={"Objects": [{"Key": "main/1"}]})
    s3.close()
    tarn.ok("commit", f"{repository}/main", "-m", "phases")


@pytest.mark.in_form("single")
@pytest.mark.skipif(PROMETHEUS is None, reason="there is no Prometheus: make dashboards gets one")
def test_every_query_is_answered_by_a_real_prometheus(
    tarn: RunningTarn, repository: str, tmp_path: Path
) -> None:
    """And a panel of a metric that every process has from its start is never empty."""
    work(tarn, repository, b"first")  # a rate needs a series that is there before what is counted
    addresses = list(tarn.state()["admin_addresses"].values())
    with prometheus(tmp_path, addresses) as server:
        work(tarn, repository, b"second")
        time.sleep(1.0)
        empty = []
        for panel in panels():
            for target in panel["targets"]:
                text = target["expr"].replace("$job", ".+").replace("$__rate_interval", "1m")
                if not server.query(text) and not metric_names(text) & STARTS_LATER:
                    empty.append(panel["title"])
        assert empty == []
        rules = [rule for group in server.get("rules")["groups"] for rule in group["rules"]]
        assert {rule["name"]: (rule["health"], rule.get("lastError")) for rule in rules} == {
            rule["name"]: ("ok", None) for rule in rules
        }
        firing = {rule["name"] for rule in rules if rule["state"] == "firing"}
        assert firing == set()
        assert _phases_of_commits(server, tarn, repository) == {"seal", "build", "publish"}


@pytest.mark.skipif(PROMETHEUS is None, reason="there is no Prometheus: make dashboards gets one")
def test_throttled_requests_and_missing_operations_are_no_server_errors(tmp_path: Path) -> None:
    """But failures are, also those of gateways of an older release, which do not count what they throttle."""
    assert PROMETHEUS is not None
    file = tmp_path / "test.yaml"
    file.write_text(RULES_TEST.format(rules=FOLDER / "alerts.yaml"))
    command = [str(Path(PROMETHEUS).with_name("promtool")), "test", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _phases_of_commits(server: Prometheus, tarn: RunningTarn, repository: str) -> set[str]:
    """Returns the phases for which the panel shows a duration, as soon as it shows one for each.

    A rate needs a series that was scraped before; the first commit of each worker begins its series.
    """
    (panel,) = [each for each in panels() if each["title"] == "Which phase of a commit is slow"]
    text = panel["targets"][0]["expr"].replace("$job", ".+").replace("$__rate_interval", "1m")
    shown: set[str] = set()
    for number in range(20):
        work(tarn, repository, b"more %d" % number)
        found = server.query(text)
        shown = {each["metric"]["phase"] for each in found if 0 < float(each["value"][1]) < 60}
        if len(shown) == 3:
            break
        time.sleep(0.5)
    return shown
