from __future__ import annotations

import base64
import hashlib
import zlib

import pytest
from awscrt import checksums as crt
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.entry import Checksum
from tarn.core.errors import TarnError
from tarn.objects.checksums import (
    Algorithm,
    Digests,
    composite_checksum,
    full_object_checksum,
    multipart_md5,
)

CRCS = {
    Algorithm.CRC32: (zlib.crc32, 4),
    Algorithm.CRC32C: (crt.crc32c, 4),
    Algorithm.CRC64NVME: (crt.crc64nvme, 8),
}


def b64(value: bytes) -> str:
    return base64.b64encode(value).decode()


@pytest.mark.parametrize("algorithm", CRCS)
@given(parts=st.lists(st.binary(max_size=50), min_size=1, max_size=6))
def test_the_crcs_of_parts_combine_into_the_crc_of_the_whole(
    algorithm: Algorithm, parts: list[bytes]
) -> None:
    crc, size = CRCS[algorithm]
    values = [(b64(crc(part).to_bytes(size, "big")), len(part)) for part in parts]
    whole = b64(crc(b"".join(parts)).to_bytes(size, "big"))
    assert full_object_checksum(algorithm, values) == Checksum(algorithm.value, whole)


@pytest.mark.parametrize("algorithm", [Algorithm.SHA1, Algorithm.SHA256])
def test_sha_checksums_of_parts_give_no_full_object_checksum(algorithm: Algorithm) -> None:
    with pytest.raises(TarnError, match="FULL_OBJECT"):
        full_object_checksum(algorithm, [])


def test_a_composite_checksum_hashes_the_parts_checksums() -> None:
    parts = [hashlib.sha256(part).digest() for part in (b"a", b"b")]
    checksum = composite_checksum(Algorithm.SHA256, map(b64, parts))
    value = b64(hashlib.sha256(b"".join(parts)).digest())
    assert checksum == Checksum("SHA256", f"{value}-2", composite=True)
    with pytest.raises(TarnError, match="COMPOSITE"):
        composite_checksum(Algorithm.CRC64NVME, [])
    with pytest.raises(TarnError, match="no SHA1 in base64"):
        composite_checksum(Algorithm.SHA1, ["AAAA"])


def test_known_values() -> None:
    digests = Digests(frozenset(Algorithm))
    digests.update(b"1234")
    digests.update(memoryview(b"56789"))
    sums = digests.finish()
    # The check values of the CRC catalogue for "123456789".
    assert {each.algorithm: base64.b64decode(each.value).hex() for each in sums.checksums} == {
        "CRC32": "cbf43926",
        "CRC32C": "e3069283",
        "CRC64NVME": "ae8b14860a799888",
        "SHA1": hashlib.sha1(b"123456789").hexdigest(),
        "SHA256": hashlib.sha256(b"123456789").hexdigest(),
    }
    assert sums.size == 9
    assert sums.md5.hex() == "25f9e794323b453885f5181f1b624d0b"


def test_the_md5_of_a_multipart_object() -> None:
    md5s = [hashlib.md5(b"a").digest(), hashlib.md5(b"b").digest()]
    assert multipart_md5(md5s) == hashlib.md5(b"".join(md5s)).digest()
