#!/bin/sh
# Starts the Python processes of a local Spark session, in place of the interpreter itself.
# Spark puts the archive pyspark.zip at the front of PYTHONPATH. It contains no bytecode, so each process would
# compile every imported module; without the archive the installed PySpark is used, which is already compiled.
# Spark also adds its own jar, whose 5,800 entries each process would list although none is a Python module.
set -f  # no globbing: a path may contain characters of a pattern
kept=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
        "$SPARK_HOME"/python/lib/*.zip | "$SPARK_HOME"/jars/spark-core_*.jar) ;;
        *) kept=$kept${kept:+:}$entry ;;
    esac
done
export PYTHONPATH="$kept"
# A task allocates large buffers of the same few sizes again and again, for received and decoded data. Arrow's own
# allocator, and the C library with its defaults, return them to the system, which then clears every page of the
# next buffer: a fifth of the reader's CPU. Arrow's allocator also holds more memory: 40 MB in a worker that writes
# an archive. More than 8 MiB are free at a time, after a record batch is handed out and before the next pulls
# arrive: with a threshold of 8 MiB, 9,000 to 30,000 pages were cleared for a million rows, with 32 MiB none.
export ARROW_DEFAULT_MEMORY_POOL="${ARROW_DEFAULT_MEMORY_POOL:-system}"
export MALLOC_MMAP_THRESHOLD_="${MALLOC_MMAP_THRESHOLD_:-33554432}"
export MALLOC_TRIM_THRESHOLD_="${MALLOC_TRIM_THRESHOLD_:-33554432}"
exec "$ORBITMQ_SPARK_PYTHON" "$@"
