"""Releases of Spark: each has the jars that are made for it, and no others."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from binlake import versions
from binlake.errors import UsageError
from binlake.spark import settings


@pytest.mark.parametrize("release", versions.SPARK_RELEASES)
def test_a_release_of_spark_gets_deltas_jar_for_it(release: str) -> None:
    delta, *others = versions.jars(f"{release}.1")
    assert delta.file == f"delta-spark_{release}_2.13-{versions.DELTA}.jar"
    assert re.fullmatch("[0-9a-f]{64}", delta.sha256)
    assert [jar.name for jar in others] == ["delta-storage", "mysql-connector-j"]


def test_the_installed_release_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed_spark", lambda: "4.1.3")
    assert versions.jars()[0].name == "delta-spark_4.1_2.13"
    assert {jar.version for jar in versions.store_jars("s3") if jar.name == "hadoop-aws"} == {"3.4.2"}


def test_jars_for_another_release_are_refused_before_a_jvm_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "JARS", tmp_path)
    monkeypatch.setattr(versions, "installed_spark", lambda: "4.0.4")
    with pytest.raises(UsageError, match="no Spark jars in"):
        settings.refuse_missing_jars("/lake")
    (tmp_path / versions.delta_jar("4.2.0").file).touch()
    with pytest.raises(UsageError, match=r"delta-spark_4\.2_2\.13-4\.4\.0\.jar isn't for Spark 4\.0\.4"):
        settings.refuse_missing_jars("/lake")
    (tmp_path / versions.delta_jar("4.0.4").file).touch()
    settings.refuse_missing_jars("/lake")


def test_older_releases_have_no_lakes_in_some_object_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hadoop 3.4.1 overwrites an object that it is to create."""
    monkeypatch.setattr(settings, "JARS", tmp_path)
    monkeypatch.setattr(versions, "installed_spark", lambda: "4.0.4")
    (tmp_path / versions.delta_jar("4.0.4").file).touch()
    assert versions.store_jars("s3", "4.0.4") == ()
    with pytest.raises(UsageError, match=r"Spark 4\.0\.4 can't commit to a lake in a store \(s3\)"):
        settings.refuse_missing_jars("s3://bucket/lake")
    monkeypatch.setattr(versions, "installed_spark", lambda: "4.1.1")
    with pytest.raises(UsageError, match=r"Spark 4\.1\.1 can't commit to a lake in a store \(azure\)"):
        settings.refuse_store("azure")
    settings.refuse_store("s3")


def test_deltas_jar_for_another_release_goes_when_a_release_is_set_up() -> None:
    pattern = versions.delta_jar("4.0.4").all_versions
    assert Path(versions.delta_jar("4.2.0").file).match(pattern)
    assert not Path("delta-storage-4.4.0.jar").match(pattern)
    assert not Path("hadoop-aws-extras-1.jar").match(versions.store_jars("s3", "4.2.0")[2].all_versions)


def test_packages_that_overwrite_each_other_have_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "refuse_misfit", lambda *packages: None)
    monkeypatch.setattr(metadata, "version", {"pyspark": "4.1.1", "pyspark-client": "4.2.0"}.__getitem__)
    with pytest.raises(UsageError, match=r"pyspark 4\.1\.1 and pyspark-client 4\.2\.0 .*\n.*pyspark-client==4\.1\.1"):
        settings.refuse_missing_jars("/lake")
    monkeypatch.setattr(metadata, "version", lambda package: "4.2.0")
    assert versions.mixed_spark() is None


def test_the_page_of_installation_lists_the_releases() -> None:
    page = Path(versions.__file__).parent / "setup" / "README.md"
    rows = [line.split("|")[1:-1] for line in page.read_text().splitlines() if re.match(r"\| \d\.\d \|", line)]
    listed = {spark.strip(): (delta.strip(), lakes.strip(), about) for spark, delta, lakes, about in rows}
    works = {spark: row for spark, row in listed.items() if not row[2].strip().startswith("refused")}
    assert tuple(works) == versions.SPARK_RELEASES
    for spark, (delta, lakes, _) in works.items():
        assert delta == versions.DELTA
        stores = [store for store in versions.STORES if versions.has_store(store, f"{spark}.0")]
        assert {"all": ["azure", "s3"], "folders, HDFS, S3": ["s3"], "folders, HDFS": []}[lakes] == stores
