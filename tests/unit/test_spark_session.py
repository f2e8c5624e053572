"""The start of Spark's Python processes in a local session."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pyspark = pytest.importorskip("pyspark")

from orbitmq.errors import ClientStateError  # noqa: E402
from orbitmq.spark import session  # noqa: E402
from orbitmq.spark.read.partitions import CORES_VARIABLE, FILTERS_VARIABLE  # noqa: E402

WRAPPER = session.WRAPPER


def test_the_archives_of_spark_itself_are_left_out_and_nothing_else() -> None:
    archives = [
        "/s/python/lib/pyspark.zip",
        "/s/python/lib/py4j-0.10.9.9-src.zip",
        "/s/jars/spark-core_2.13-4.2.0.jar",
    ]
    kept = ["/a b/*", "/s/jars/graphframes.jar", "/other/python/lib/pyspark.zip"]
    done = subprocess.run(
        [WRAPPER, "-c", "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:])", "an argument", ""],
        env={
            "PATH": os.environ["PATH"],
            "SPARK_HOME": "/s",
            "PYTHONPATH": ":".join([*archives, *kept]),
            "ORBITMQ_SPARK_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{':'.join(kept)} ['an argument', '']\n"


@pytest.mark.parametrize(
    ("given", "pool"), [({}, "system"), ({"ARROW_DEFAULT_MEMORY_POOL": "jemalloc"}, "jemalloc")]
)
def test_arrow_takes_memory_from_the_heap_unless_told_otherwise(given: dict[str, str], pool: str) -> None:
    pytest.importorskip("pyarrow")
    done = subprocess.run(
        [WRAPPER, "-c", "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"],
        env={"PATH": os.environ["PATH"], "ORBITMQ_SPARK_PYTHON": sys.executable, **given},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{pool}\n"


ROUNDS_OF_A_READER = """
import ctypes, resource
c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes, c.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
faults = []
for _ in range(6):
    held = [c.malloc(1 << 20) for _ in range(16)]
    for at in held:
        ctypes.memset(at, 1, 1 << 20)
    for at in held:
        c.free(at)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[-1] - faults[1])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library's settings are glibc's")
def test_memory_that_a_reader_takes_again_and_again_stays_with_the_worker() -> None:
    done = subprocess.run(
        [WRAPPER, "-c", ROUNDS_OF_A_READER],
        env={"PATH": os.environ["PATH"], "ORBITMQ_SPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    # If returned to the system, 16 MiB would be 4096 page faults in each round.
    assert int(done.stdout) < 1000


def test_only_local_sessions_with_the_installed_pyspark_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("ORBITMQ_SPARK_PYTHON", "")
    assert session._python(is_local=True) == WRAPPER
    assert os.environ["ORBITMQ_SPARK_PYTHON"] == sys.executable
    assert session._python(is_local=False) == sys.executable
    monkeypatch.setenv("SPARK_HOME", os.path.dirname(pyspark.__file__))
    assert session._python(is_local=True) == WRAPPER
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert session._python(is_local=True) == sys.executable


@pytest.mark.parametrize("name", ["PYSPARK_PYTHON", "SPARK_LOCAL_IP"])
def test_a_cluster_takes_nothing_from_a_local_session_of_the_same_process(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_set_by_a_session", {})
    for other in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP", "SPARK_HOME", CORES_VARIABLE, FILTERS_VARIABLE):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv("ORBITMQ_SPARK_PYTHON", "")
    session._set_environment("local[2]", {})
    local = {"PYSPARK_PYTHON": WRAPPER, "SPARK_LOCAL_IP": "127.0.0.1"}
    assert {name: os.environ[name] for name in local} == local
    assert os.environ[CORES_VARIABLE] == "2"
    session._set_environment("spark://master:7077", {})
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert not {"SPARK_LOCAL_IP", CORES_VARIABLE} & set(os.environ)
    session._set_environment("local[2]", {})
    assert {name: os.environ[name] for name in local} == local
    with monkeypatch.context() as running:
        running.setattr(session.SparkContext, "_gateway", "a JVM")
        with pytest.raises(ClientStateError, match="in a process of its own"):
            session._set_environment("spark://master:7077", {})
    monkeypatch.setenv(name, "the user's")
    session._set_environment("spark://master:7077", {})
    assert os.environ[name] == "the user's"
