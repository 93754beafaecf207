"""A configuration goes through text and comes back the same."""

from __future__ import annotations

from pathlib import Path

from tarn.config import KEYS, load, variables_of
from tarn.config.values import Choice, Form, Number, Sort, Within

EXAMPLES = {
    Sort.TEXT: "some, text",
    Sort.SECRET: "hush",
    Sort.HEX_SECRET: "ab" * 32,
    Sort.PATH: "~/x y",
    Sort.ADDRESS: "[::1]:8",
    Sort.ADDRESSES: "a:1, b:2",
    Sort.FLAG: "no",
    Sort.RATIO: "0.0000123",
    Sort.DURATION: "7m",
    Sort.SIZE: "7MiB",
}
VALID = {
    "TARN_INSTALLATION_ID": "lake-1",
    "TARN_BLOCKSTORE_TYPE": "s3",
    "TARN_BLOCKSTORE_DEFAULT_NAMESPACE_PREFIX": "s3://bucket/x",
    "TARN_BLOCKSTORE_S3_ENDPOINT": "https://s3.example.com",
}


def test_defaults_come_back() -> None:
    config = load(None, {"HOME": "/home/ann"})
    assert load(None, {"HOME": "/", **variables_of(config)}) == config


def test_every_setting_comes_back() -> None:
    given = dict(VALID)
    for key in KEYS:
        kind = key.kind
        match kind:
            case Choice(words=words):
                example = words[-1]
            case Number(maximum=maximum):
                example = str(maximum)
            case Form():
                continue  # in VALID
            case Within(sort=sort):
                example = EXAMPLES[sort]
            case _:
                example = EXAMPLES[kind]
        given.setdefault(key.variable, example)
    config = load(None, {"HOME": str(Path("/home/ann")), **given})
    assert set(variables_of(config)) == {key.variable for key in KEYS}
    assert load(None, {"HOME": "/", **variables_of(config)}) == config
