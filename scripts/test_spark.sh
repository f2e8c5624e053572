#!/bin/sh
# Runs the Spark tests with the newest PySpark of each given minor version, each in a virtual environment of its own:
#     sh scripts/test_spark.sh .venv/bin/python 4.0 4.3
# With SHORT=1 only the format, and with the newest version what `make test` has not the packages for. At first an
# environment holds what a cluster has that brings its PySpark (orbitmq's needs and pyarrow), and what the tests need.
set -eu
python=$1
shift
JAVA_HOME=$(sh scripts/java.sh) || exit 1
export JAVA_HOME
# Absolute: a pipeline runs in its own folder.
PYTHONPATH=$PWD/src
export PYTHONPATH
cluster="pyarrow>=18 msgspec>=0.19 typing_extensions>=4.12"
tests="pytest>=8.3 hypothesis>=6.115 cyclopts>=4.0 rich>=13.9 uvloop>=0.21 lark>=1.2 setuptools"
failed=
for newest in "$@"; do :; done
for version in "$@"; do
    begin=$(date +%s)
    venv=.venvs/pyspark-$version
    if ! { [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"; } ||
        ! "$venv/bin/python" -m pip install -q --disable-pip-version-check "pyspark==$version.*" $cluster $tests; then
        echo "test-spark: PySpark $version cannot be installed: skipped"
        [ -z "${ORBITMQ_CI:-}" ] || failed="$failed $version (skipped)"
        continue
    fi
    found=$("$venv/bin/python" -c "import pyspark; print(pyspark.__version__)")
    run="$venv/bin/python -m pytest -q -p no:cacheprovider"
    $run tests/spark/test_spark_format.py tests/unit/test_spark_older_stream.py \
        tests/unit/test_spark_rows.py tests/unit/test_spark_lookup.py || failed="$failed $found"
    # The newest has the tests that need more than a cluster brings; without SHORT every version has all tests.
    more=
    if [ "$version" = "$newest" ]; then
        more="tests/spark/test_spark_commands.py
            tests/spark/test_spark_object_store.py tests/unit/test_spark_tables.py
            tests/spark/test_spark_connect.py tests/spark/test_spark_jobs.py::test_an_archive_is_also_a_table"
    fi
    [ -n "${SHORT:-}" ] ||
        more="tests/spark tests/unit/test_spark_jobs.py tests/unit/test_spark_tables.py
            --ignore=tests/spark/test_spark_format.py"
    if [ -n "$more" ]; then
        # Jobs use Spark's functions over pandas, which every cluster has.
        ORBITMQ_TEST_SPARK=1
        "$venv/bin/python" -m pip install -q --disable-pip-version-check 'pandas>=2.2,<3' 'moto[server]>=5' \
            'deltalake>=1' 'pyiceberg[sql-sqlite]>=0.9' "pyspark[connect]==$found" || {
            echo "test-spark: without tables, an object store or Spark Connect for $found"
            ORBITMQ_TEST_SPARK=
            [ -z "${ORBITMQ_CI:-}" ] || failed="$failed $found (in part)"
        }
        run="env ORBITMQ_SPARK_SHORT=${SHORT:-} ORBITMQ_TEST_SPARK=$ORBITMQ_TEST_SPARK $run"
        # A cluster's session needs a JVM without a local one before it: a process of its own.
        standalone=tests/spark/test_spark_standalone.py
        without=--ignore=$standalone
        # The page on jobs takes two minutes, Spark's own servers three: with the newest.
        if [ "$version" = "$newest" ]; then
            $run $standalone || failed="$failed $found (standalone)"
        else
            without="$without --ignore=tests/spark/test_spark_commands.py --ignore=tests/spark/test_spark_connect.py"
        fi
        $run $more $without || failed="$failed $found"
    fi
    echo "test-spark: PySpark $found took $(($(date +%s) - begin)) s"
done
[ -z "$failed" ] || { echo "test-spark: FAILED with$failed"; exit 1; }
