"""What the installed PySpark offers. Nothing else of this package asks for its version.

The format needs PySpark 4.0. Later versions bring: Arrow writers for streams and filters of batch reads
(4.1), limits on what a trigger reads (4.2).
"""

from __future__ import annotations

import re
from typing import Any

import pyspark

from orbitmq.spark.errors import VersionError

OLDEST = (4, 0)


def version_of(text: str) -> tuple[int, int]:
    """Major and minor number, also of texts such as ``4.0.0.dev1``."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def check_version(text: str) -> None:
    """Refuse a PySpark that has no data sources in Python.

    Raises:
        VersionError: it is older than 4.0.
    """
    if version_of(text) < OLDEST:
        raise VersionError(
            f"PySpark {text} has no data sources in Python: the format rocketmq needs PySpark "
            f"{OLDEST[0]}.{OLDEST[1]} or later (pip install 'pyspark>=4.0')"
        )


check_version(pyspark.__version__)

# Imported after the check: an older PySpark has no such module, and the ImportError would not say why.
from pyspark.sql import datasource as _offered  # noqa: E402

# Rows of a stream come to a writer as Arrow batches; else as Row objects (see write.row_writer).
HAS_ARROW_STREAM_WRITER = hasattr(_offered, "DataSourceStreamArrowWriter")
HAS_FILTERS = hasattr(_offered, "EqualTo")
# Spark calls latestOffset with the end of the last batch and a limit; AvailableNow may take several batches.
HAS_READ_LIMITS = version_of(pyspark.__version__) >= (4, 2)

StreamArrowWriter: Any = getattr(_offered, "DataSourceStreamArrowWriter", _offered.DataSourceStreamWriter)
