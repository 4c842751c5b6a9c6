#!/usr/bin/env python3
"""Start Spark in this process' Java, with a catalog lake that is an Iceberg REST catalog.

Run as a program it only fetches what Spark needs for that into conformance/.cache, so that later starts need no network.
"""
import os

# For the PySpark of requirements-conformance.txt: Spark 4.1, Scala 2.13.
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
CACHE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".cache", "ivy")


def start(uri):
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession
    builder = SparkSession.builder.appName("conformance").master("local[1]")
    for key, value in {
        "spark.jars.packages": ICEBERG,
        "spark.jars.ivy": os.path.normpath(CACHE),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": uri,
        "spark.sql.catalog.lake.cache-enabled": "false",
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    start("http://127.0.0.1:1").stop()  # nobody asks the catalog
