"""One YAML file, environment variables, and the table of every key.

    config = load(Path("tarn.yaml"), os.environ)
    config.gateways.s3.listen_address

Configuration only describes: nothing is opened here but the installation's secret. Defaults are
overridden by the file, the file by the environment (`TARN_GATEWAYS_S3_LISTEN_ADDRESS`); a secret may
come from a file (`TARN_INSTALLATION_SECRET_FILE`). Only services' `config.py` and the command line use
this package.
"""

from __future__ import annotations

from tarn.config.errors import ConfigError
from tarn.config.keys import KEYS, Key
from tarn.config.loading import load
from tarn.config.reference import describe
from tarn.config.rendering import variables_of
from tarn.config.secret_file import installation_secret
from tarn.config.sections import Config
from tarn.config.values import Secret

__all__ = [
    "KEYS",
    "Config",
    "ConfigError",
    "Key",
    "Secret",
    "describe",
    "installation_secret",
    "load",
    "variables_of",
]
