#!/bin/sh
# Starts the Python processes of a local Spark session, in place of the interpreter itself.
# Spark puts the archive pyspark.zip in front of their path. It holds no bytecode, so that each process would
# compile all that it imports; without the archive the installed PySpark is taken, which is compiled already.
set -f  # a path may hold what a shell takes for a pattern
kept=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
        "$SPARK_HOME"/python/lib/*.zip) ;;
        *) kept=$kept${kept:+:}$entry ;;
    esac
done
export PYTHONPATH="$kept"
exec "$ORBITMQ_SPARK_PYTHON" "$@"
