"""A Spark Declarative Pipelines project over a topic, to begin with."""

from __future__ import annotations

import sys
from importlib.resources import files
from string import Template

from orbitmq.message import reserved
from orbitmq.spark.errors import JobError
from orbitmq.spark.jobs.folder import Folder
from orbitmq.spark.jobs.report import Report

# The files of the project, and where they come from in this package.
_FILES = {
    "spark-pipeline.yml": "spark-pipeline.yml",
    "transformations/tables.py": "transformations/tables.py.txt",
    "conf/spark-defaults.conf": "conf/spark-defaults.conf",
    "run.sh": "run.sh",
}


def write_template(to: str, topic: str, name_servers: str = "127.0.0.1:9876") -> Report:
    """Write a project that keeps the messages of a topic as a table, and counts over them as another.

    It needs Spark 4.1 or newer with ``pip install 'pyspark[pipelines]'``.

    Raises:
        JobError: there is such a project already, or the folder cannot be written to.
    """
    fault = reserved.topic_fault(topic)
    if fault:
        raise JobError(f"{topic!r} is no topic: {fault}")
    folder = Folder(to)
    existing = next((path for path in _FILES if folder.exists(path)), None)
    if existing is not None:
        raise JobError(f"{folder.below(existing)} is there already; choose another folder")
    values = {
        "topic": topic,
        "name_servers": name_servers,
        "folder": folder.location,
        "python": sys.executable,
    }
    source = files("orbitmq.spark.jobs") / "pipeline_template"
    for path, origin in _FILES.items():
        text = source.joinpath(origin).read_text(encoding="utf-8")
        folder.write(path, Template(text).substitute(values).encode())
    return Report(
        "template",
        summary=f"wrote a pipeline over {topic} to {to}; run it with: sh {to}/run.sh",
        facts={"folder": folder.location, "files": sorted(_FILES)},
    )
