"""The features of the installed PySpark. No other module of this package checks its version.

The format needs PySpark 4.0. Later versions add Arrow writers for streams and filters of batch reads (4.1),
and limits of a trigger's reads (4.2).
"""

from __future__ import annotations

import re
from typing import Any

import pyspark

from orbitmq.spark.errors import VersionError

OLDEST = (4, 0)


def version_of(text: str) -> tuple[int, int]:
    """Major and minor number, also from texts such as ``4.0.0.dev1``."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def check_version(text: str) -> None:
    """Refuse a PySpark without data sources in Python.

    Raises:
        VersionError: the version is older than 4.0.
    """
    if version_of(text) < OLDEST:
        raise VersionError(
            f"PySpark {text} has no data sources in Python: the format rocketmq needs PySpark "
            f"{OLDEST[0]}.{OLDEST[1]} or later (pip install 'pyspark>=4.0')"
        )


check_version(pyspark.__version__)

# Imported after the check: an older PySpark lacks this module, and the ImportError would not give the reason.
from pyspark.sql import datasource as _offered  # noqa: E402

# Whether a stream's rows reach a writer as Arrow batches; otherwise as Row objects (see write.row_writer).
HAS_ARROW_STREAM_WRITER = hasattr(_offered, "DataSourceStreamArrowWriter")
HAS_FILTERS = hasattr(_offered, "EqualTo")
# Whether Spark calls latestOffset with the end of the last batch and a limit, so that AvailableNow may take
# several batches.
HAS_READ_LIMITS = version_of(pyspark.__version__) >= (4, 2)

StreamArrowWriter: Any = getattr(_offered, "DataSourceStreamArrowWriter", _offered.DataSourceStreamWriter)
