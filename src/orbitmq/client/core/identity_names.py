"""The names of options about keys and TLS, and of the environment variables that replace them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# For each option, in the spelling of Spark's users, the environment variable.
VARIABLES: Final[Mapping[str, str]] = {
    "accessKey": "ORBITMQ_ACCESS_KEY",
    "secretKey": "ORBITMQ_SECRET_KEY",
    "securityToken": "ORBITMQ_SECURITY_TOKEN",
    "credentialsFile": "ORBITMQ_CREDENTIALS_FILE",
    "tls": "ORBITMQ_TLS",
    "tlsCa": "ORBITMQ_TLS_CA",
    "tlsCert": "ORBITMQ_TLS_CERT",
    "tlsKey": "ORBITMQ_TLS_KEY",
    "tlsCheckHost": "ORBITMQ_TLS_CHECK_HOST",
}
