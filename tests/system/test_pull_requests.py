"""The page about pull requests works when it is pasted into a shell, and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages_as_written import assert_printed, own_name, play, script_of
from running_tarn import RunningTarn

PAGE = Path(__file__).parents[2] / "docs" / "user" / "pull-requests.md"


@pytest.mark.in_form("single")
def test_the_page_about_pull_requests_works_as_written(tarn: RunningTarn, tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    script = script_of(text)
    # Names of its own in the Tarn that tests share.
    repository = own_name("pulls", tmp_path)
    script = re.sub(r"\blake\b", repository, script)
    script = re.sub(r"(create|--user) ben\b", rf"\1 ben-of-{repository}", script)
    done = play(tarn, script, tmp_path)
    printed = done.stdout.replace(f"ben-of-{repository}", "ben").replace(repository, "lake")
    assert_printed(text, printed)
    assert not list(tmp_path.iterdir()), "the session cleans up"
