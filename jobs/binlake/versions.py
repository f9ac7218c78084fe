"""Releases of Spark and Delta that work together, the jars that are added to pyspark's own, and the packages that are
installed beside binlake.

Imports nothing outside the stdlib until packages are compared: that takes 20 ms, which no command needs that succeeds
without Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from binlake.errors import UsageError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

SPARK = "4.2.0"
"""The release that the lock file has."""
DELTA = "4.4.0"
"""The release of Delta for all of these releases of Spark; those of 4.4.1's jars can't be had."""
CONNECTOR_J = "9.7.0"
HADOOP = "3.5.0"
"""The version of the Hadoop client of SPARK."""
AWS_SDK = "2.35.4"
"""The version that this Hadoop was built and tested with; it serves those of earlier releases, too."""
JAVAS = (17, 21)
"""The major versions of Java that Spark runs on."""
JAVA = JAVAS[0]
"""The one that set-up installs."""


@dataclass(frozen=True)
class Jar:
    """A jar: its coordinates for Ivy and Maven, and the file's SHA-256."""

    organisation: str
    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """Return the jar's file name."""
        return f"{self.name}-{self.version}.jar"

    @property
    def all_versions(self) -> str:
        """Return a pattern of the file names of all its versions, also of those for other releases of Spark."""
        name, separator, _ = self.name.partition("_")
        return f"{name}_*.jar" if separator else f"{name}-[0-9]*.jar"


_DELTA_FOR = {
    "4.0": "49e899667168b9412f83cbe894ce264107d7b896d6c5e12edca4e216845c1104",
    "4.1": "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    "4.2": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
}
"""The SHA-256 of Delta's jar by the release of Spark that it is made for."""
SPARK_RELEASES = tuple(_DELTA_FOR)
_OF_ALL = (
    Jar("io.delta", "delta-storage", DELTA, "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
    Jar(
        "com.mysql",
        "mysql-connector-j",
        CONNECTOR_J,
        "0353648eaa1c91e0f4020c959abf756bc866ffd583df22ae6b6f6e0cbd43eb44",
    ),
)


def installed_spark() -> str:
    """Return the version of pyspark here; SPARK where there is none."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return SPARK


def mixed_spark() -> tuple[str, str] | None:
    """Return the versions of pyspark and pyspark-client where they differ: whichever was installed last has overwritten
    files of the other."""
    try:
        both = metadata.version("pyspark"), metadata.version("pyspark-client")
    except metadata.PackageNotFoundError:
        return None
    return both if both[0] != both[1] else None


def release_of(spark: str) -> str:
    """Return the release of a version of Spark, such as 4.2 of 4.2.0."""
    return ".".join(spark.split(".")[:2])


def delta_jar(spark: str) -> Jar:
    """Return the jar of Delta for a version of Spark; for a release that isn't known that of SPARK."""
    release = release_of(spark)
    release = release if release in _DELTA_FOR else release_of(SPARK)
    return Jar("io.delta", f"delta-spark_{release}_2.13", DELTA, _DELTA_FOR[release])


def jars(spark: str | None = None) -> tuple[Jar, ...]:
    """Return the jars that a version of Spark needs, by default the one that is installed."""
    # delta-spark's pom also names delta-kernel and unitycatalog: tables reached by path never load a class
    # of them (write, merge, column mapping, optimize, vacuum and restore were tried without).
    return (delta_jar(spark or installed_spark()), *_OF_ALL)


_AWS_SDK_PARTS = {
    "annotations": "6f36bd87155d1dd85d6efbdd29e532e3759a022211feb71affebee1aa34f04b8",
    "apache-client": "6eade21b482724ed0a4613eaa95d20e47e7a81304bd28538ac427fece94a7740",
    "arns": "c63cc29f76a8527e9e10b621703163df541dc5cb315508dc2898518602c75380",
    "auth": "6b601323004833fb4a857ffc95db4795e0e6320eb93e64b1246c655c9ff04994",
    "aws-core": "fdb5fc8f1a48d97fa7d04d3460fb42f6973c7b1bbe1b9d317871ef0162bcb623",
    "aws-query-protocol": "9b4cf9b78977cc9f5b4ceae9c435dedbde6a055a0f8d9e053eaca945715e2a9f",
    "aws-xml-protocol": "4f59176da2522c357b1993e4a890fde529f12f365795ef86269bde4a3984cd0d",
    "checksums": "94464af4374d08ecf33ca06ed4d03e1615529e547726e26b56abacefbeee7948",
    "checksums-spi": "88b5af85ac2d3c862be8856be4e683ab31932e4a5a3c1c45af864d2671ac7cec",
    "crt-core": "2c6aaa17bf9ccbb9d962dded4351e73decb197e3c5519970e0dae17e05d3df62",
    "endpoints-spi": "ef02441bda916959b8341290b49c68cc35538e1ad6f8629b75d8334dc6653e00",
    "http-auth": "3ec933a06e751a05e195eb3589209e23c44e1897263b6fcae34ef4cc63cd4491",
    "http-auth-aws": "c4acb92fdec90bfd9b67bfab8e41b69cd152c03cacc10281a8ab464791856e01",
    "http-auth-aws-eventstream": "709107552f302be3fa9e05969a3779f5c0f07fb809e6fa1fa571a6f0c61326dd",
    "http-auth-spi": "4495463406bb98eb136f2c3f3604ed5f08ec9974ebc3f34f2121b20679f61d5c",
    "http-client-spi": "728be89b2a07b595edb0adee3a2cbbbdd4cb1f4caddde0d08c3979fe2620dedb",
    "identity-spi": "188d73db7d4e2361654bc3c5a1b3eaeb445d0500fb012cc46c5d67975adf97bf",
    "json-utils": "80d67a6bb3e7eb49c7d4b6e4ba4c1463ed7da0192b795158328602dc131c5ecc",
    "metrics-spi": "c2a4ee90a21081317e2e6eba0c414d05d3d518aed2f86b1c1710a7367b450487",
    "netty-nio-client": "b82f8b33e5c85273a47da45ede884d7ccb31c9c2f69e6910a76c5c48fa1275dc",
    "profiles": "0f4ef7ca72ccd80dd49ebeaf7f3ce60a7d7a00da59a91aeeae6e91052bbacbd8",
    "protocol-core": "f2532eca6ba2142fe4821d5decb03c83a3e15dc8bfae2240e7f2efa75f9868b5",
    "regions": "77eae87b34ce96ecdf916a9bc06684dbeafcb6d38ef0513285fa5d5d6d41f5ca",
    "retries": "f99fb2f8c66d7e859955b3542d3af8f9de8f23a21d5e3250f0f2c5f18487e469",
    "retries-spi": "668638751d059c527ddd41ffa4dcebe36a7c14860ed56776df09b861c14dc7dd",
    "s3": "f23532c5223be9b0bfec0d72837ed09ed34dbdf8022818ba145b20076a78b4bc",
    "s3-transfer-manager": "0eec78870b3d0abc509a847072cf963cb2ae6e360dc6161a9449b3398c470476",
    "sdk-core": "fa559a4ce598852f3519c8f3b36250f583b0858a7611eedc4a81997778c617f4",
    "sts": "8d0f7816d3f96e3f00249f5d054d926e939a104bcf9ef57676ee0b16c59684d2",
    "third-party-jackson-core": "32f4252c6c2df8f3a4aff885e6dc77024ad6b4cb48455d07b461ec30c41643ea",
    "utils": "642aeef536a071668f0b772f05f9d21573abf6955e7b6fb5fdb893760cca10e8",
    "utils-lite": "e004806def5e22ec98edc48a133ff3317166255e1ba29d93d129e9fdfa64a7be",
}


@dataclass(frozen=True)
class _Hadoop:
    """Hadoop's client of a release of Spark. aws, azure: the SHA-256 of its file systems' jars, None where a lake there
    isn't proved."""

    version: str
    aws: str
    azure: str | None = None


_HADOOP_OF = {
    "4.1": _Hadoop(
        "3.4.2",
        aws="d2d24e6b715b5656b9d238bf13b6682a07e2004dd36aad74a73aeb854319f4d9",
    ),
    "4.2": _Hadoop(
        HADOOP,
        aws="66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa",
        azure="220b5db238b82437960e4b81c7e3eefa4eff2a03ad502887497f11d0ad86e663",
    ),
}
"""By the release of Spark. That of 4.0, 3.4.1, can't create an object on a condition, which commits of Delta need."""
STORES = ("azure", "s3")
"""The object stores for which `binlake setup --stores NAME` downloads jars."""


def has_store(store: str, spark: str) -> bool:
    """Return whether a version of Spark can commit to a kind of object store; a release that isn't known counts as
    SPARK."""
    release = release_of(spark) if release_of(spark) in _DELTA_FOR else release_of(SPARK)
    hadoop = _HADOOP_OF.get(release)
    return hadoop is not None and (store != "azure" or hadoop.azure is not None)


def store_jars(store: str, spark: str | None = None) -> tuple[Jar, ...]:
    """Return the jars that a version of Spark needs for lakes in an object store, by default the one that is installed;
    none where it has no such lakes."""
    version = spark or installed_spark()
    if not has_store(store, version):
        return ()
    hadoop = _HADOOP_OF.get(release_of(version), _HADOOP_OF[release_of(SPARK)])
    if store == "azure" and hadoop.azure:
        return (Jar("org.apache.hadoop", "hadoop-azure", hadoop.version, hadoop.azure),)
    # Hadoop's pom names the SDK's bundle, which has all of Amazon's services (650 MB). These are what S3A loads and
    # what credentials may come from (sts), 13 MB with the rest; HTTP clients, logging and Netty are pyspark's own.
    return (
        Jar(
            "software.amazon.s3.analyticsaccelerator",
            "analyticsaccelerator-s3",
            "1.3.1",
            "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e",
        ),
        Jar(
            "software.amazon.eventstream",
            "eventstream",
            "1.0.1",
            "0c37d8e696117f02c302191b8110b0d0eb20fa412fce34c3a269ec73c16ce822",
        ),
        Jar("org.apache.hadoop", "hadoop-aws", hadoop.version, hadoop.aws),
        Jar(
            "org.reactivestreams",
            "reactive-streams",
            "1.0.4",
            "f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28",
        ),
        *(Jar("software.amazon.awssdk", name, AWS_SDK, digest) for name, digest in _AWS_SDK_PARTS.items()),
    )


_OURS = "binlake"
OF_SPARK = ("pyspark", "pyspark-client", "delta-spark")
"""Packages that are needed where Spark is started, and nowhere else."""


@dataclass(frozen=True)
class Unfit:
    """A package that binlake can't work with. version: the installed one; None where there is none."""

    package: str
    version: str | None
    wanted: str
    extra: str = ""
    """The extra of binlake that asks for the package."""

    def __str__(self) -> str:
        there = f"{self.package} {self.version} is installed" if self.version else f"{self.package} isn't installed"
        return f"{there}, and binlake needs {self.package}{self.wanted}"

    @property
    def remedy(self) -> str:
        """Return the command that installs what is wanted."""
        if self.extra and not self.version:
            return f"pip install 'binlake[{self.extra}]'"
        return f"pip install '{self.package}{self.wanted}'"


def unfit(*extras: str) -> list[Unfit]:
    """Return the packages that are missing or don't fit, by name: those that the wheel always asks for, and those of
    these of its extras. None where binlake wasn't installed by its wheel, as on executors that have it as a zip.
    """
    from packaging.requirements import Requirement

    try:
        declared = [Requirement(line) for line in metadata.requires(_OURS) or []]
    except metadata.PackageNotFoundError:
        return []
    wrong: dict[str, Unfit] = {}
    for requirement in declared:
        asking = [extra for extra in ("", *extras) if _applies(requirement, extra)]
        version = _version(requirement.name)
        if asking and (version is None or not requirement.specifier.contains(version, prereleases=True)):
            wrong[requirement.name] = Unfit(requirement.name, version, str(requirement.specifier), asking[0])
    return [wrong[name] for name in sorted(wrong)]


def misfit(*extras: str, without: Collection[str] = ()) -> UsageError | None:
    """Return the error for packages that don't fit: what is there, what is wanted, and the command for it; None where
    all fit. extras: see ``unfit``. without: packages that don't matter.
    """
    return _error([one for one in unfit(*extras) if one.package not in without])


def refuse_misfit(*packages: str, extra: str = "") -> None:
    """Raise UsageError if one of the packages doesn't fit. extra: the extra of the wheel that asks for them."""
    if error := _error([one for one in unfit(extra) if one.package in packages]):
        raise error


def _error(wrong: Sequence[Unfit]) -> UsageError | None:
    if not wrong:
        return None
    return UsageError("; ".join(map(str, wrong)), remedy="; ".join(dict.fromkeys(one.remedy for one in wrong)))


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
