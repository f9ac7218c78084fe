"""The topics of a feed's tables, no two of which may meet.

Names that differ in characters that a topic can't have, or in where the database ends, give one topic. Rows of two
tables with one key would replace each other there, and compaction would remove them.
"""

from __future__ import annotations

from collections.abc import Callable
from string import Template

from binlake.errors import FeedError
from binlake.feeds.contract import FeedContext
from binlake.schema.table import TableName

_NAMES = ("db", "table")


class Topics:
    """The topics by a template of the YAML. written: turns a text into a topic's name. more: words of the format's own.

    Tables share a topic on purpose where the template names neither database nor table.
    """

    def __init__(self, template: str, context: FeedContext, written: Callable[[str], str] = str, **more: str) -> None:
        self._template, self._context, self._written = Template(template), context, written
        self._words = {"source": context.source, "feed": context.feed, **more}
        used = self._template.get_identifiers()
        self._told_apart_by = tuple(word for word in _NAMES if word in used)
        self._first: dict[str, TableName] = {}
        self._places: dict[TableName, int] = {}
        self._checked: set[TableName] = set()

    def of(self, name: TableName, **more: str) -> str:
        """Return a table's topic. Raises FeedError where an older table has it, too."""
        if name not in self._checked:
            self._refuse_meeting(name)
            self._checked.add(name)
        return self._topic(name, **more)

    def _topic(self, name: TableName, **more: str) -> str:
        words = {**self._words, "db": name.database, "table": name.table, **more}
        return self._written(self._template.substitute(words))

    def _refuse_meeting(self, name: TableName) -> None:
        """Raise FeedError where an older table of the source has the same topic; tables that are gone don't count."""
        if name not in self._places:
            living = self._context.living()
            self._places = {table: place for place, table in enumerate(living)}
            self._first = {}
            for table in living:
                self._first.setdefault(self._topic(table), table)
        first = self._first.get(topic := self._topic(name))
        if first is None or name not in self._places or self._same(first, name):
            return
        raise FeedError(
            f"{name} is written as {topic}, as {first} is already: rows of both with one key would replace each other",
            remedy="give the tables feeds of their own with topics that distinguish them, or exclude one from the feed",
        )

    def _same(self, one: TableName, other: TableName) -> bool:
        return all(self._word(one, word) == self._word(other, word) for word in self._told_apart_by)

    @staticmethod
    def _word(name: TableName, word: str) -> str:
        return name.database if word == "db" else name.table
