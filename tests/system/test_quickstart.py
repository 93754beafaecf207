"""`make quickstart` on an empty folder: what it prints leads to the web interface, the REST API and S3."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, Request, build_opener

import msgspec
import pytest
import yaml
from lxml import html
from running_tarn import BIN, STOP_SECONDS, clean_environment
from slowness import scaled

ROOT = Path(__file__).parents[2]
SECONDS = scaled(480)

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(SECONDS + 120)]


def recipe(data: Path) -> list[str]:
    """Returns the commands of `make quickstart` on a folder and free ports."""
    settings = [f"DATA={data}", "PORT=0", "RPC_PORT=0"]
    command = ["make", "--no-print-directory", "-n", "quickstart", *settings]
    printed = subprocess.run(
        command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=True
    )
    return printed.stdout.splitlines()


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A folder for a Tarn, which is stopped at the end."""
    folder = tmp_path / "data"
    yield folder
    if folder.exists():
        down = [str(BIN / "tarn"), "down", "--data-dir", str(folder)]
        subprocess.run(down, env=clean_environment(), timeout=STOP_SECONDS, check=True)
    shutil.rmtree(folder, ignore_errors=True)


def run(command: list[str], file: Path) -> str:
    """Runs a command, and returns what it printed. A file takes it: the Tarn that goes on would keep a pipe open."""
    with file.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also Spark, if it hangs
    printed = file.read_text()
    assert code == 0, printed
    return printed


def test_what_it_prints_leads_to_the_web_interface_and_the_api(data: Path) -> None:
    setup, start = recipe(data)  # this environment is set up already
    assert setup == "tools/setup"
    printed = run(start.split(), data.parent / "printed")
    pair = yaml.safe_load((data / "credentials").read_text())
    key, secret = pair["access_key_id"], pair["secret_access_key"]
    assert secret not in printed
    # The sentence for people: the address, and the key to sign in with.
    [web] = re.findall(r"^In a browser: open (http://\S+) and sign in with$", printed, re.MULTILINE)
    assert re.findall(r"^  access key id +(\S+)$", printed, re.MULTILINE) == [key]
    browser = build_opener(HTTPCookieProcessor(CookieJar()))
    browser.addheaders = [("Accept", "text/html"), ("Sec-Fetch-Site", "same-origin")]
    with browser.open(web, timeout=60) as answer:
        page: html.HtmlElement = html.document_fromstring(answer.read(), base_url=answer.url)
    [form] = [each for each in page.forms if "secret" in each.fields]
    fields = dict(form.fields) | {"key": key, "secret": secret}
    signing_in = urlencode(fields).encode()
    with browser.open(urljoin(web, form.action), signing_in, timeout=60) as answer:
        page = html.document_fromstring(answer.read(), base_url=answer.url)
    assert page.xpath("//main//a[@href='/repositories/lake']"), "the repository of its job"
    # The address that it names for lakeFS's clients, with the same key.
    [api] = set(re.findall(r"^api +(http://\S+)$", printed, re.MULTILINE))
    asked = Request(
        f"{api}/api/v1/repositories/lake/branches",
        headers={"Authorization": f"Basic {b64encode(f'{key}:{secret}'.encode()).decode()}"},
    )
    with build_opener().open(asked, timeout=60) as answer:
        found = msgspec.json.decode(answer.read())
    assert [each["id"] for each in found["results"]] == ["fix-1", "main"]
