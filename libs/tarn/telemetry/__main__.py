"""Prints the table of metrics for docs/operate/metrics.md: `python -m tarn.telemetry`."""

from __future__ import annotations

import sys

from tarn.telemetry.metric_table import page

sys.stdout.write(page())
