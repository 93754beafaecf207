"""`python -m tarn_gateway.operations` prints the tables of operations and headers for `docs/user/s3.md`."""

import sys

from tarn_gateway.operations.reference import describe

sys.stdout.write(describe())
