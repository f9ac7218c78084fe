"""The table maps of a slice: each is understood once, and ``scan`` finds it again by its id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from binlake.binlog import scan, tablemap
from binlake.binlog.border import Forming, Masking, Wanted, Withheld
from binlake.binlog.columns import TableDecoder, undecodable
from binlake.binlog.events import FormatDescription
from binlake.binlog.tablemap import TableMap, Undecodable
from binlake.binlog.transport import padded
from binlake.caches import remembered
from binlake.errors import Malformed
from binlake.kernels import layouts
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_forms import AS_SERVED
from binlake.schema.table import TableName
from binlake.schema.types.log_form import Field


@remembered("table maps")
def _shape(behind_name: bytes, mariadb: bool) -> tuple[tuple[Field, ...], tuple[str, ...]]:
    """Parse a table map's bytes behind the table's name, which are the same for all shards of a table."""
    return tablemap.parse_shape(behind_name, mariadb=mariadb)


@dataclass
class KnownTable:
    """A table map that was seen.

    body: its bytes after the table id. decoder: None for a table that isn't wanted, and for a map that can't be read.
    why, raw: for the latter, the error and the event's bytes, which are reported with the rows. absent: columns that
    the images of some of its rows lacked."""

    body: npt.NDArray[np.uint8]
    name: TableName
    table: TableMap | None = None
    decoder: TableDecoder | None = None
    why: Undecodable | None = None
    raw: bytes = b""
    absent: set[str] = field(default_factory=set)


class KnownTables:
    """The table maps that were seen in a slice, in their order.

    listed, cache: the same for ``scan``, by number and by table id.
    """

    def __init__(
        self,
        wanted: Wanted,
        invalid: InvalidValues,
        description: FormatDescription,
        id_size: int,
        masking: Masking | None = None,
        forming: Forming | None = None,
    ) -> None:
        self._wanted = wanted
        self._forming = forming
        self._masking = masking
        self._invalid = invalid
        self._mariadb = description.mariadb
        self._id_size = id_size
        self._known: list[KnownTable] = []
        self._by_body: dict[bytes, int] = {}
        self._decoders: dict[tuple[Any, ...], TableDecoder] = {}
        self.listed = layouts.many(64, layouts.KNOWN)
        self.cache = layouts.many(scan.CACHE_SIZE, layouts.MAPPED)
        self.cache["table_id"] = -1

    def __getitem__(self, number: int) -> KnownTable:
        return self._known[number]

    def forget_maps(self) -> None:
        """Have the next map of each table understood again: a statement may have changed what is withheld."""
        self._by_body.clear()
        self.cache["table_id"] = -1

    @property
    def unchecked(self) -> set[TableName]:
        """The tables of which some rows came from a session with foreign_key_checks = 0."""
        return {known.name for known, of in zip(self._known, self.listed, strict=False) if of["unchecked"]}

    def note(self, body: bytes, raw: Callable[[], bytes]) -> None:
        """Note a table map for ``scan``, which then reads the event again. raw: gives the whole event's bytes."""
        identity, name, behind_name = tablemap.table_name(body, self._id_size)
        key = body[self._id_size :]
        number = self._by_body.get(key)
        if number is None:
            number = len(self._known)
            known = self._understood(body[behind_name:], name, padded(key), raw)
            self._known.append(known)
            self._by_body[key] = number
            if number >= len(self.listed):
                self.listed = np.concatenate([self.listed, np.zeros_like(self.listed)])
            is_listed = known.decoder is not None or known.why is not None
            self.listed[number] = (known.body.ctypes.data, len(key), is_listed, 0)
        self.cache[identity & (scan.CACHE_SIZE - 1)] = (identity, number)

    def _understood(
        self, behind_name: bytes, name: TableName, key: npt.NDArray[np.uint8], raw: Callable[[], bytes]
    ) -> KnownTable:
        """Return a table by its map. Tables of one shape, of which the same is withheld, have one decoder."""
        wanted = self._wanted(name.database, name.table)
        if wanted is False:
            return KnownTable(key, name)
        withheld = Withheld(wanted if isinstance(wanted, frozenset) else frozenset())
        try:
            table = TableMap(name, *_shape(behind_name, self._mariadb))
            if self._masking is not None:
                withheld = self._masking(name, table.columns)
            form = self._forming(name) if self._forming is not None else AS_SERVED
            shown = (tuple(withheld.masks.items()), tuple(form.names.items()), tuple(form.types.items()))
            known = (table.fields, table.key, withheld.excluded, *shown)
            decoder = self._decoders.get(known)
            if decoder is None:
                decoder = self._decoders[known] = TableDecoder(
                    table, self._invalid, withheld.excluded, withheld.masks, form
                )
        except (Undecodable, Malformed, UnicodeDecodeError) as error:
            return KnownTable(key, name, why=undecodable(error), raw=raw())
        return KnownTable(key, name, table, decoder)
