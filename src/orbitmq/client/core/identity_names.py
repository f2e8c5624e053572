"""The names of options about keys and TLS, and the variables of the environment that stand for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# By the name of the option, as Spark's users write it: the variable of the environment.
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
