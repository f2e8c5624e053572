#!/bin/sh
# Brings the tables up to date: sh run.sh. A check without reading: sh run.sh dry-run
cd "$$(dirname "$$0")" || exit 1
export SPARK_CONF_DIR="$$PWD/conf"
export PYSPARK_PYTHON="$${PYSPARK_PYTHON:-$python}"
export SPARK_LOCAL_IP="$${SPARK_LOCAL_IP:-127.0.0.1}"
exec spark-pipelines --remote "local[2]" "$${1:-run}"
