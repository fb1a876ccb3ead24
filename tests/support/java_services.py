"""Jars from Maven, and services that are Java programs, for tests that are marked as long."""

import glob
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped] # it has none

from embermq.spark.session import java_home

HADOOP = "3.5.0"
"""The version that PySpark brings."""
MINI_CLUSTER = f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP}"
S3A = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP}",
    "software.amazon.awssdk:bundle:2.35.4",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)
"""What `s3a` needs. Their own dependencies do not all resolve, and are not needed."""

_SPARK_JARS = Path(pyspark.__file__).parent / "jars"
_FOR_HDFS = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "jcl-over-slf4j", "log4j", "jackson", "jakarta")


@contextmanager
def java(classpath: list[str]) -> Iterator[Any]:
    """A Java process with these jars; it ends with the context, and with this process."""
    (py4j,) = glob.glob(f"{_SPARK_JARS}/py4j*.jar")
    port, process = launch_gateway(
        jarpath=py4j,
        classpath=":".join(classpath),
        java_path=f"{java_home()}/bin/java",
        javaopts=["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"],
        die_on_exit=True,
        return_proc=True,
        redirect_stdout=subprocess.DEVNULL,
        redirect_stderr=subprocess.DEVNULL,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield gateway.jvm
    finally:
        gateway.close()
        process.kill()
        process.wait()


def jars(*coordinates: str) -> list[str]:
    """Files of Maven artifacts, without their dependencies, fetched as Spark fetches its packages."""
    with java([f"{_SPARK_JARS}/*"]) as jvm:
        found = []
        for coordinate in coordinates:
            address = jvm.java.net.URI(f"ivy://{coordinate}?transitive=false")
            resolved = jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(address)
            found.append(str(resolved.head()).removeprefix("file:"))
        return found


@contextmanager
def hdfs(directory: Path) -> Iterator[str]:
    """A real HDFS with one data node, in a process of its own; its URL."""
    own = [jar for name in _FOR_HDFS for jar in glob.glob(f"{_SPARK_JARS}/{name}*.jar")]
    with java([*jars(MINI_CLUSTER), *own]) as jvm:
        settings = jvm.org.apache.hadoop.conf.Configuration()
        settings.set("hdfs.minidfs.basedir", str(directory))
        settings.set("dfs.replication", "1")
        cluster = jvm.org.apache.hadoop.hdfs.MiniDFSCluster.Builder(settings).numDataNodes(1).build()
        yield str(cluster.getURI().toString()).rstrip("/")
