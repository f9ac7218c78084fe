"""The parsers of the commands about feeds: ``feed``, ``tail``, ``relay`` and ``console-consumer``."""

from __future__ import annotations

import argparse
from typing import Any

from binlake.cli import argument_values, parser_parts


def add_all(subparsers: Any) -> None:
    """Add the commands about feeds."""
    _add_feeds(subparsers)
    _add_relay(subparsers)
    _add_console_consumer(subparsers)


def _add_feeds(subparsers: Any) -> None:
    help_ = "carry the YAML's feeds to the newest recorded batch"
    feed = subparsers.add_parser("feed", help=help_, description=help_, parents=[parser_parts.common_options()])
    feed.add_argument("--config", required=True, metavar="FILE", help="the source's YAML, or a file of feeds")
    which = feed.add_mutually_exclusive_group()
    which.add_argument("--feed", metavar="NAME", help="only this feed")
    which.add_argument(
        "--forget", metavar="NAME", help="forget this feed's position and keep no staging for it; nothing is sent"
    )
    feed.add_argument(
        "--until", default="now", metavar="now|TIMESTAMP", help="stop before commits at or after this time"
    )
    feed.add_argument("--follow", action="store_true", help="continue with each batch that is recorded, until SIGTERM")
    begins = ("oldest", "now", "lake")
    feed.add_argument("--restart-from", choices=begins, help="forget the feed's position, and begin here")
    feed.add_argument("--anew", dest="restart_from", choices=begins, help=argparse.SUPPRESS)  # its former name
    feed.add_argument("--json", action="store_true", help="print JSON for programs")
    feed.set_defaults(command=parser_parts.imported_when_run("binlake.cli.feed_commands", "feed"))
    help_ = "print staged mutations, one message per line"
    tail = subparsers.add_parser("tail", help=help_, description=help_, parents=[parser_parts.common_options()])
    tail.add_argument("--config", required=True, metavar="FILE", help="the source's YAML, or a file of feeds")
    of = tail.add_mutually_exclusive_group()
    of.add_argument("--feed", metavar="NAME", help="as this feed sends them")
    of.add_argument("--table", type=argument_values.pattern, metavar="DB.T", help="only of these tables, shell-style")
    tail.add_argument(
        "--format", choices=("debezium", "generic", "specific", "text"), help="by default the feed's, or text"
    )
    tail.add_argument("--registry", metavar="URL", help="a schema registry, for --format specific, or debezium as Avro")
    tail.add_argument("--registry-connection", metavar="ID", help="an Airflow connection with its credentials")
    tail.add_argument(
        "--from",
        dest="start",
        default="start",
        type=argument_values.batch,
        metavar="start|now|BATCH",
        help="by default the oldest staged",
    )
    tail.add_argument("--follow", action="store_true", help="continue with each batch that is recorded, until SIGTERM")
    tail.set_defaults(command=parser_parts.imported_when_run("binlake.cli.feed_commands", "tail"))


def _add_relay(subparsers: Any) -> None:
    help_ = "serve subscriptions to events: HTTP and the binary protocol of mysql-replication-relay"
    relay = subparsers.add_parser("relay", help=help_, description=help_, parents=[parser_parts.common_options()])
    relay.add_argument("--config", required=True, metavar="FILE", help="the source's YAML")
    relay.add_argument(
        "--port", required=True, type=argument_values.port, metavar="N", help="for both protocols; 0: a free one"
    )
    relay.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="by default only this machine")
    relay.add_argument(
        "--secret-file", required=True, metavar="FILE", help="its first line is the clients' shared secret"
    )
    relay.add_argument(
        "--admin-secret-file", metavar="FILE", help="its first line is the secret for listing and removing clients"
    )
    relay.add_argument(
        "--monitor-port",
        type=argument_values.port,
        metavar="N",
        help="for the monitoring page without a secret, on this machine alone",
    )
    relay.add_argument(
        "--every", type=argument_values.positive, default=1.0, metavar="SECONDS", help="look for new batches; default 1"
    )
    relay.add_argument(
        "--keep-gb",
        type=argument_values.positive,
        default=50.0,
        metavar="GB",
        help="the most staging kept for the slowest client",
    )
    relay.add_argument(
        "--keep-hours",
        type=argument_values.positive,
        default=168.0,
        metavar="HOURS",
        help="how long staging is kept for it",
    )
    relay.set_defaults(command=parser_parts.imported_when_run("binlake.relay.serve", "relay"))


def _add_console_consumer(subparsers: Any) -> None:
    help_ = "print a Kafka topic's committed messages readably: Avro, Debezium, text"
    consumer = subparsers.add_parser(
        "console-consumer", help=help_, description=help_, parents=[parser_parts.common_options()]
    )
    consumer.add_argument("topic", metavar="TOPIC")
    consumer.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="a broker")
    consumer.add_argument("--connection", metavar="ID", help="an Airflow connection with the credentials")
    consumer.add_argument("--registry", metavar="URL", help="a schema registry, for Avro in Confluent's form")
    consumer.add_argument("--registry-connection", metavar="ID", help="an Airflow connection with its credentials")
    consumer.add_argument("--max", type=int, metavar="N", help="end after N messages")
    consumer.add_argument("--follow", action="store_true", help="wait at the topic's end, until Ctrl-C")
    consumer.set_defaults(command=parser_parts.imported_when_run("binlake.cli.feed_commands", "console_consumer"))
