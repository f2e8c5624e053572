#!/bin/sh
# Starts the Python processes of a local Spark session, in place of the interpreter itself.
# Spark puts the archive pyspark.zip in front of their path. It holds no bytecode, so that each process would
# compile all that it imports; without the archive the installed PySpark is taken, which is compiled already.
# Spark also puts its own jar there, whose 5,800 entries each process would list to find no module among them.
set -f  # a path may hold what a shell takes for a pattern
kept=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
        "$SPARK_HOME"/python/lib/*.zip | "$SPARK_HOME"/jars/spark-core_*.jar) ;;
        *) kept=$kept${kept:+:}$entry ;;
    esac
done
export PYTHONPATH="$kept"
# What a task receives and decodes comes in large pieces of the same few sizes, over and over. Arrow's own
# allocator, and the C library with its defaults, hand them back to the system, which then clears every page of
# the next one: a fifth of the reader's CPU. Arrow's also holds more: 40 MB in a worker that writes an archive.
# What is free at once, when a record batch has gone and the next pulls have not come, is more than 8 MiB: with
# that as the border for giving back, 9,000 to 30,000 pages were cleared for a million rows; with this one none.
export ARROW_DEFAULT_MEMORY_POOL="${ARROW_DEFAULT_MEMORY_POOL:-system}"
export MALLOC_MMAP_THRESHOLD_="${MALLOC_MMAP_THRESHOLD_:-33554432}"
export MALLOC_TRIM_THRESHOLD_="${MALLOC_TRIM_THRESHOLD_:-33554432}"
exec "$ORBITMQ_SPARK_PYTHON" "$@"
