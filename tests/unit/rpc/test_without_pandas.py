"""Services never import pandas, which pyarrow does where it is installed."""

from __future__ import annotations

import subprocess
import sys

_IMPORTED = "import sys; print(sys.modules.get('pandas') is not None)"


def imports_pandas(code: str) -> bool:
    command = [sys.executable, "-c", f"{code}\n{_IMPORTED}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return ran.stdout.strip() == "True"


def test_an_array_of_a_list_does_not_import_it() -> None:
    array = "import pyarrow\npyarrow.array(['a'])"
    left_out = "from tarn.rpc.process.without_pandas import leave_out_pandas\nleave_out_pandas()"
    assert imports_pandas(array), "pyarrow no longer imports pandas: without_pandas.py can go"
    assert not imports_pandas(f"{left_out}\n{array}")


def test_to_import_a_worker_does_not_import_it() -> None:
    assert not imports_pandas("import tarn_cli.node.worker")


def test_who_has_pandas_keeps_it() -> None:
    assert imports_pandas(
        "import pandas\nfrom tarn.rpc.process.without_pandas import leave_out_pandas\nleave_out_pandas()"
    )
