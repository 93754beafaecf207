"""The metrics and labels that the dashboard and the alerts use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tarn.telemetry.metric_table import TABLE, Kind

__all__ = ["alerts", "expressions", "metric_names", "panels"]

FOLDER = Path(__file__).parents[2] / "deploy" / "telemetry"

_HISTOGRAMS = {each.prometheus_name for each in TABLE if each.kind is Kind.HISTOGRAM}
_PARTS = re.compile(r"_(bucket|sum|count)$")


def panels() -> list[dict[str, Any]]:
    """Returns the panels of the dashboard, without the rows."""
    found = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def alerts() -> list[dict[str, Any]]:
    """Returns the alert rules."""
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    """Yields place and text of every query."""
    for panel in panels():
        for target in panel["targets"]:
            yield f"panel {panel['title']}", target["expr"]
    for rule in alerts():
        yield f"alert {rule['alert']}", rule["expr"]


def metric_names(expression: str) -> set[str]:
    """Returns the names of Tarn's metrics in a query, as the table has them."""
    names = re.findall(r"\btarn_[a-z_]+", expression)
    wholes = {name: _PARTS.sub("", name) for name in names}
    return {whole if whole in _HISTOGRAMS else name for name, whole in wholes.items()}
