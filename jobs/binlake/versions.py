"""The jars beside pyspark's own: the one place for their versions. Imports nothing outside the stdlib."""

from __future__ import annotations

from dataclasses import dataclass

SPARK = "4.2.0"
DELTA = "4.4.0"
CONNECTOR_J = "9.7.0"
JAVA = 17
"""The least major version that Spark runs on."""


@dataclass(frozen=True)
class Jar:
    """Coordinates as Ivy and Maven know them, and the SHA-256 of the file."""

    organisation: str
    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.jar"


# delta-spark's pom also names delta-kernel and unitycatalog: tables reached by path never load a class
# of them (write, merge, column mapping, optimize, vacuum and restore were tried without).
JARS = (
    Jar(
        "io.delta",
        "delta-spark_4.2_2.13",
        DELTA,
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar("io.delta", "delta-storage", DELTA, "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
    Jar(
        "com.mysql",
        "mysql-connector-j",
        CONNECTOR_J,
        "0353648eaa1c91e0f4020c959abf756bc866ffd583df22ae6b6f6e0cbd43eb44",
    ),
)
