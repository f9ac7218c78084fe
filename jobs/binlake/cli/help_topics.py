"""The pages that ``binlake help`` prints: Markdown files of the checkout, which the wheel holds as well."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import binlake
from binlake.errors import SetupFailed

_PACKAGE = Path(binlake.__file__).parent
_CHECKOUT = _PACKAGE.parents[1]
_IN_WHEEL = "readme"
"""The package's folder with the pages from outside ``jobs/binlake``; pyproject.toml fills it."""


@dataclass(frozen=True)
class Topic:
    """One page. page: its path in the checkout. about: what it holds, in one line."""

    name: str
    page: str
    about: str

    @property
    def text(self) -> str:
        """Return the page. Raises SetupFailed where this installation doesn't have it."""
        return installed_text(self.page)


def installed_text(page: str) -> str:
    """Return a text of the checkout by its path there. Raises SetupFailed where this installation doesn't have it."""
    inside = page.removeprefix("jobs/binlake/")
    for path in (_PACKAGE / inside, _PACKAGE / _IN_WHEEL / page, _CHECKOUT / page):
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise SetupFailed(f"this installation has no page {page}", remedy="install binlake's wheel again")


TOPICS = {
    topic.name: topic
    for topic in (
        Topic("overview", "README.md", "what binlake is, the servers, first steps, all commands"),
        Topic("yaml", "dags/pipelines/README.md", "every setting of a source's YAML"),
        Topic("operations", "jobs/README.md", "how it works, commands, problems, upkeep, catalogs, installation"),
        Topic("backup", "jobs/BACKUP.md", "backup and restore of a lake, metadata that are lost"),
        Topic("airflow", "plugins/README.md", "the DAGs, the page, DAGs of your own"),
        Topic(
            "servers",
            "jobs/binlake/source/README.md",
            "accounts, connections, TLS, services, failover, folders of binlog files",
        ),
        Topic("types", "jobs/binlake/schema/README.md", "types in the lake, changes of shape, limits"),
        Topic("feeds", "jobs/binlake/feeds/README.md", "mutations to Kafka, webhooks, files, binlog files"),
        Topic("relay", "jobs/binlake/relay/README.md", "subscriptions over HTTP and a binary protocol"),
        Topic("stores", "jobs/binlake/storage/README.md", "a lake in a folder, on S3, Azure or HDFS"),
        Topic("clusters", "jobs/binlake/spark/README.md", "Spark's settings, and executors on other hosts"),
        Topic("binlog", "jobs/binlake/binlog/README.md", "the log's reader alone, and a second opinion"),
        Topic("analysts", "sql/README.md", "reading the tables, their past, the metadata"),
        Topic("security", "jobs/SECURITY.md", "what is promised and what isn't, and how to report a hole"),
        Topic("docker", "docker/README.md", "the whole stack in containers"),
    )
}


def print_help(arguments: argparse.Namespace) -> None:
    """Print the page of a topic; without a topic, list all of them."""
    if arguments.topic:
        print(TOPICS[arguments.topic].text, end="")
        return
    width = max(map(len, TOPICS))
    for topic in TOPICS.values():
        print(f"{topic.name:<{width}}  {topic.about}")
