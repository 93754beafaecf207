"""The table of keys is complete, and the documentation is made from it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from tarn.config import KEYS, Config, Secret, describe, load
from tarn.config.key_table import build, keys_of
from tarn.config.setting import kind_of, setting
from tarn.config.values import Choice, Form, Kind, Number, Sort, Within

DOC = Path(__file__).parents[3] / "docs" / "operate" / "configuration.md"

# Every key that the first draft of lakeFS documents (docs/design/departures.md).
DOCUMENTED = set(
    """
    logging.format logging.level logging.output metadata.db.type metadata.badger.path
    blockstore.type blockstore.local.path blockstore.s3.region blockstore.s3.profile
    blockstore.s3.credentials_file blockstore.s3.credentials.access_key_id
    blockstore.s3.credentials.access_secret_key blockstore.s3.credentials.session_token
    gateways.s3.listen_address gateways.s3.domain_name gateways.s3.region api.listen_address
    """.split()  # noqa: SIM905 - a page of quotes hides the names
)


def test_names_aliases_and_variables_are_unique() -> None:
    names = Counter(name for key in KEYS for name in key.names)
    variables = Counter(key.variable for key in KEYS)
    assert [name for name, count in (names + variables).items() if count > 1] == []
    # The file variable of a secret is not the variable of another key.
    files = {key.variable + "_FILE" for key in KEYS if key.is_secret}
    assert not files & set(variables)


def test_every_key_that_the_first_draft_documents_exists() -> None:
    assert {name for key in KEYS for name in key.names} >= DOCUMENTED


def test_the_documentation_holds_the_table_once() -> None:
    text = DOC.read_text()
    assert text.endswith(describe()), "put the output of `python -m tarn.config` into the document"
    assert Counter(re.findall(r"^\| `([a-z0-9_.]+)` \|", text, re.MULTILINE)) == Counter(
        key.name for key in KEYS
    )


def test_each_key_stands_in_the_documentation_with_type_default_and_meaning() -> None:
    rows = dict(re.findall(r"^\| `([a-z0-9_.]+)` \| (.*) \|$", DOC.read_text(), re.MULTILINE))
    assert rows["workers"].startswith("0 to 256 | `0` | Worker processes")
    assert rows["durability"].startswith("one of `fsync`, `os` | `fsync` | ")
    assert rows["blockstore.s3.part_size"].startswith("size, 5MiB to 1GiB | `8MiB` | ")
    assert rows["blockstore.s3.deadline"].startswith("duration, 1ms or more | `60s` | ")
    assert rows["metadata.db.embedded.path"].endswith(
        "Also `metadata.db.badger.path`, `metadata.badger.path`."
    )
    assert all(key.doc.endswith((".", ")")) for key in KEYS)


def test_a_field_without_a_setting_is_an_error() -> None:
    with pytest.raises(KeyError):
        build(Config, {})
    with pytest.raises(TypeError, match=r"a\.size of S is neither a setting nor a section"):
        list(keys_of(make_dataclass("S", [("size", int)]), "a."))


def test_a_key_is_its_field_without_the_unit() -> None:
    section = make_dataclass(
        "S",
        [
            ("wait_ms", int, setting("1s", "How long.")),
            ("size_bytes", int | None, setting(None, "How much.", aliases=("much",))),
            ("name", str, setting("x", "Who.")),
        ],
    )
    found = [(key.name, key.field, key.kind, key.variable) for key in keys_of(section, "a.b.")]
    assert found == [
        ("a.b.wait", "a.b.wait_ms", Sort.DURATION, "TARN_A_B_WAIT"),
        ("a.b.size", "a.b.size_bytes", Sort.SIZE, "TARN_A_B_SIZE"),
        ("a.b.name", "a.b.name", Sort.TEXT, "TARN_A_B_NAME"),
    ]


Level = Literal["info", "warning"]


@pytest.mark.parametrize(
    ("name", "hint", "given", "kind"),
    [
        ("a", bool, None, Sort.FLAG),
        ("a", float, None, Sort.RATIO),
        ("a", Path | None, None, Sort.PATH),
        ("a", Secret | None, None, Sort.SECRET),
        ("a", Secret, Sort.HEX_SECRET, Sort.HEX_SECRET),
        ("a", tuple[str, ...], None, Sort.ADDRESSES),
        ("a", str | None, Sort.ADDRESS, Sort.ADDRESS),
        ("a", Literal["x", "y"], None, Choice(("x", "y"))),
        ("a_ms", int, Within(Sort.DURATION, "1s"), Within(Sort.DURATION, "1s")),
    ],
)
def test_a_type_says_how_its_text_is_read(
    name: str, hint: Any, given: Kind | None, kind: Kind
) -> None:
    assert kind_of(name, hint, given) == kind


@pytest.mark.parametrize(
    ("name", "hint", "given"),
    [
        ("count", int, None),  # an int needs a unit and bounds
        ("a", list[str], None),
        ("a", str, Number(0, 1)),
        ("a", Path, Form("x", "x")),
        ("a", str, Sort.HEX_SECRET),
        ("a", bool, Sort.TEXT),
        ("a_ms", int, Number(0, 1)),
        ("a_bytes", int, Within(Sort.DURATION, "1s")),
        ("a", int, Within(Sort.DURATION, "1s")),
        ("a", Level, Choice(("INFO",))),
        ("a", Level, Choice(("INFO", "WARN"))),
        ("a", Level, Choice(("INFO", "WARN"), (("warn", "loud"),))),
    ],
)
def test_a_kind_whose_values_are_not_of_the_type_is_refused(
    name: str, hint: Any, given: Kind | None
) -> None:
    with pytest.raises(TypeError, match=rf"^{name}: "):
        kind_of(name, hint, given)


def test_defaults_are_read_as_the_texts_of_people_are() -> None:
    """Bounds and forms apply to defaults, too: a default that its own kind refuses cannot be loaded."""
    config = load(None, {"HOME": "/home/ann"})
    assert config.blockstore.s3.part_size_bytes == 8 << 20
    assert config.data_dir == Path("/home/ann/tarn")
