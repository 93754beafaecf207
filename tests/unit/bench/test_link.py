"""A link of a benchmark: made with its rate, removed with all that belongs to it, refused plainly without root."""

from __future__ import annotations

import os
import subprocess

import pytest
from bench.link import host_behind, refusal


def test_a_user_is_told_what_a_link_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in refusal()
    with pytest.raises(RuntimeError, match="needs root"), host_behind(100):
        pass


@pytest.mark.skipif(bool(refusal()), reason="makes network namespaces")
def test_a_host_has_a_link_of_the_rate_each_way_until_it_is_removed() -> None:
    with host_behind(250) as host:
        inside = _output(*host.command, "tc", "qdisc", "show")
        outside = _output("tc", "qdisc", "show")
        addresses = _output(*host.command, "ip", "address")
        name = host.command[-1]
        assert "rate 250Mbit" in inside
        assert f"dev {name}n" in outside
        assert "rate 250Mbit" in outside
        assert host.address in addresses
    assert name not in _output("ip", "netns", "list")
    assert name not in _output("ip", "link")


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
