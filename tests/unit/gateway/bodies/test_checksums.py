from __future__ import annotations

import pytest

from tarn.objects.checksums import Algorithm
from tarn_gateway.bodies.checksums import checksum_header, parse_algorithm
from tarn_gateway.s3error import S3Error


def test_names() -> None:
    assert checksum_header("CRC64NVME") == "x-amz-checksum-crc64nvme"
    assert parse_algorithm("crc32c") is Algorithm.CRC32C
    with pytest.raises(S3Error, match="InvalidRequest"):
        parse_algorithm("MD5")
