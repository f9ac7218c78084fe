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


QUESTIONS = {
    "What is it, and how does it begin?": (
        Topic("overview", "README.md", "what binlake is, the servers, first steps, all commands"),
        Topic("install", "jobs/binlake/setup/README.md", "the wheel without a checkout, its extras, Spark's jars"),
        Topic("docker", "docker/README.md", "the whole stack in containers"),
        Topic(
            "servers",
            "jobs/binlake/source/README.md",
            "accounts, connections, TLS, services, failover, folders of binlog files",
        ),
        Topic(
            "access",
            "jobs/binlake/source/ACCESS.md",
            "tokens in the place of passwords, tunnels, passwords that change",
        ),
    ),
    "What can be set?": (
        Topic("yaml", "dags/pipelines/README.md", "a source's YAML: what is mirrored, and where to"),
        Topic("settings", "dags/pipelines/SETTINGS.md", "a source's YAML: how its steps work, policies, Airflow"),
        Topic(
            "policies", "dags/pipelines/POLICIES.md", "a source's YAML: masks, row filters, changes that wait for a yes"
        ),
        Topic("stores", "jobs/binlake/storage/README.md", "a lake in a folder, on S3, Azure or HDFS"),
        Topic("clusters", "jobs/binlake/spark/README.md", "Spark's settings, and executors on other hosts"),
    ),
    "How is it run, and what to do if something is wrong?": (
        Topic("operations", "jobs/README.md", "how it works, commands, problems and what to do"),
        Topic("airflow", "plugins/README.md", "the DAGs, and DAGs of your own"),
        Topic("page", "plugins/PAGE.md", "Airflow's page: what it shows, its buttons, who may do what"),
        Topic("api", "plugins/API.md", "the page's data and buttons, as JSON"),
        Topic("forms", "plugins/FORMS.md", "adding a source by Airflow's page, and editing one"),
        Topic("follow", "jobs/FOLLOW.md", "batches of seconds, all the time"),
        Topic("upkeep", "jobs/binlake/maintain/README.md", "binlake maintain"),
        Topic("verify", "jobs/binlake/verify/README.md", "whether the lake is right; repair and replay"),
        Topic("backup", "jobs/BACKUP.md", "backup and restore of a lake, metadata that are lost"),
        Topic("metrics", "jobs/METRICS.md", "figures for Prometheus"),
    ),
    "How are the tables read?": (
        Topic("analysts", "sql/README.md", "SQL, Python, other readers, the metadata"),
        Topic("sql", "sql/SQL.md", "queries: two versions at once, changes of rows, tables and columns, the prompt"),
        Topic("versions", "jobs/binlake/lake/README.md", "all tables at one position: which can be read, and pins"),
        Topic("modes", "sql/MODES.md", "a table's log and history, deleted rows that stay, what wrote a row"),
        Topic("iceberg", "jobs/binlake/iceberg/README.md", "the same data files as Iceberg tables"),
        Topic("catalog", "jobs/binlake/catalog/README.md", "an Iceberg REST catalog in which each batch is a database"),
        Topic("register", "jobs/binlake/registered/README.md", "names of the tables in catalogs of others"),
        Topic("types", "jobs/binlake/schema/README.md", "types in the lake, changes of shape, limits"),
    ),
    "Who else gets the changes?": (
        Topic("feeds", "jobs/binlake/feeds/README.md", "mutations to Kafka, webhooks, files, binlog files"),
        Topic("formats", "jobs/binlake/feeds/formats/README.md", "what a feed's messages look like"),
        Topic("relay", "jobs/binlake/relay/README.md", "subscriptions over HTTP and a binary protocol"),
        Topic("binlog", "jobs/binlake/binlog/README.md", "the log's reader alone, and a second opinion"),
    ),
    "What is inside, and how is it changed?": (
        Topic("architecture", "jobs/ARCHITECTURE.md", "the picture, a row's way, promises and their tests, all words"),
        Topic("security", "jobs/SECURITY.md", "what is promised and what isn't, and how to report a hole"),
        Topic("contributing", "jobs/CONTRIBUTING.md", "set-up, tests, and three changes file by file"),
        Topic("changelog", "jobs/CHANGELOG.md", "what each release changed"),
    ),
}
"""The pages, by the question that they answer."""
TOPICS = {topic.name: topic for topics in QUESTIONS.values() for topic in topics}


def print_help(arguments: argparse.Namespace) -> None:
    """Print the page of a topic; without a topic, list all of them by question."""
    if arguments.topic:
        print(TOPICS[arguments.topic].text, end="")
        return
    width = max(map(len, TOPICS))
    for question, topics in QUESTIONS.items():
        print(question)
        for topic in topics:
            print(f"  {topic.name:<{width}}  {topic.about}")
