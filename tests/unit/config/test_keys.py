"""The table, the sections and the documentation say the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from tarn.config import KEYS, Config, Secret, describe, load
from tarn.config.sections import build
from tarn.config.values import Sort

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


def leaves(section: object, prefix: str = "") -> set[str]:
    """Full names of the fields of a configuration that are no sections."""
    names: set[str] = set()
    assert is_dataclass(section)
    for field in fields(section):
        value = getattr(section, field.name)
        if is_dataclass(value) and not isinstance(value, Secret):
            names |= leaves(value, prefix + field.name + ".")
        else:
            names.add(prefix + field.name)
    return names


def test_the_sections_hold_the_keys_of_the_table_and_no_others() -> None:
    suffixed = {key.name + (key.sort.suffix if isinstance(key.sort, Sort) else "") for key in KEYS}
    assert leaves(load(None, {"HOME": "/home/ann"})) == suffixed


def test_names_aliases_and_variables_are_unique() -> None:
    names = Counter(name for key in KEYS for name in (key.name, *key.aliases))
    variables = Counter(key.variable for key in KEYS)
    assert [name for name, count in (names + variables).items() if count > 1] == []
    # A secret's file variable is nobody else's.
    files = {key.variable + "_FILE" for key in KEYS if key.is_secret}
    assert not files & set(variables)


def test_every_key_that_the_first_draft_documents_exists() -> None:
    assert {name for key in KEYS for name in (key.name, *key.aliases)} >= DOCUMENTED


def test_the_documentation_is_up_to_date() -> None:
    text = DOC.read_text()
    assert describe() in text, "put the output of `python -m tarn.config` into the document"


def test_a_field_without_a_setting_is_an_error() -> None:
    with pytest.raises(KeyError):
        build(Config, {})
