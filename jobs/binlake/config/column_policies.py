"""Policies on columns: what becomes of their values before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from binlake import names
from binlake.config import hash_connections
from binlake.config.mirrored_tables import ColumnPattern, refuse_patterns
from binlake.config.schema_change_tools import changed_table, hides_original
from binlake.config.section import Section
from binlake.schema.hash_key import HashKey
from binlake.schema.lake_forms import AS_SERVED, LakeForm, LakeType
from binlake.schema.mask import FEWEST_DIGITS, MOST_DIGITS, Mask

_ACTIONS = ("hash", "mask", "truncate", "null", "exclude", "rename", "type")


class HashPolicy(Section):
    """A hash in a value's place. key: the connection whose password is the hash's key. length: hexadecimal digits."""

    key: Annotated[str, Field(min_length=1)]
    length: Annotated[int, Field(ge=FEWEST_DIGITS, le=MOST_DIGITS)] = MOST_DIGITS


class MaskPolicy(Section):
    """Characters that are kept of a text; ``with_`` takes the place of each other one."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    keep_first: Annotated[int, Field(ge=1, le=1000)] | None = None
    keep_last: Annotated[int, Field(ge=1, le=1000)] | None = None
    with_: Annotated[str, Field(alias="with", min_length=1, max_length=1)] = "*"

    @model_validator(mode="after")
    def _keeps_something(self) -> Self:
        if self.keep_first is None and self.keep_last is None:
            raise ValueError("found neither keep_first nor keep_last; write one, or null: true to keep nothing")
        return self


class ColumnPolicy(Section):
    """What becomes of columns that a pattern matches: of their values (one of hash, mask, truncate, null and exclude),
    or of their name and type (rename, type)."""

    columns: ColumnPattern
    hash: HashPolicy | None = None
    mask: MaskPolicy | None = None
    truncate: Literal["year", "month", "day", "hour"] | Annotated[int, Field(ge=1, le=1000, strict=True)] | None = None
    null: bool = False
    exclude: bool = False
    rename: Annotated[str, Field(max_length=64, pattern=r"^[^\W\d_]\w*$")] | None = None

    type: LakeType | None = None

    @property
    def masks(self) -> bool:
        """Return whether the entry is a mask."""
        return self.null or any(part is not None for part in (self.hash, self.mask, self.truncate))

    @model_validator(mode="after")
    def _has_one_action(self) -> Self:
        refuse_patterns([self.columns])
        said = [action for action in _ACTIONS if getattr(self, action) not in (None, False)]
        if len(said) != 1:
            what = " and ".join(said) or "nothing"
            raise ValueError(f"{self.columns}: found {what}; write one of {', '.join(_ACTIONS)}")
        return self

    def action(self) -> Mask | None:
        """Return the mask; None for columns that have none. Raises ConfigurationError for a missing key."""
        if self.hash is not None:
            return Mask("hash", self.hash.length, hash_connections.key(self.hash.key).fingerprint)
        if self.mask is not None:
            first, last = self.mask.keep_first or 0, self.mask.keep_last or 0
            return Mask("keep", first=first, last=last, fill=self.mask.with_)
        if isinstance(self.truncate, int):
            return Mask("truncate", self.truncate)
        if self.truncate is not None:
            return Mask("truncate", unit=self.truncate)
        return Mask("nothing") if self.null else None


ColumnPolicies = list[ColumnPolicy]


def excluded_by(policies: Iterable[ColumnPolicy]) -> list[str]:
    """Return the patterns of columns that aren't read."""
    return [policy.columns for policy in policies if policy.exclude]


def masks_any(policies: Iterable[ColumnPolicy]) -> bool:
    """Return whether any column is masked."""
    return any(policy.masks for policy in policies)


def forms_any(policies: Iterable[ColumnPolicy]) -> bool:
    """Return whether any column has another name or type in the lake."""
    return any(policy.rename is not None or policy.type is not None for policy in policies)


def hash_keys(policies: Iterable[ColumnPolicy]) -> dict[str, HashKey]:
    """Return the keys of hashes, by connection. Raises ConfigurationError for one that isn't there."""
    return {connection: hash_connections.key(connection) for connection in key_connections(policies)}


def key_connections(policies: Iterable[ColumnPolicy]) -> list[str]:
    """Return the connections whose passwords are keys, each once."""
    return sorted({policy.hash.key for policy in policies if policy.hash is not None})


def masks_of(policies: Sequence[ColumnPolicy], database: str, table: str) -> Mapping[str, Mask]:
    """Return a table's masks, by column in lower case; of entries that match one column, the last one counts.

    A schema change tool's copy has those of its table, by its name; where that doesn't show which, all of the database.
    Raises ConfigurationError for a hash's key that isn't there.
    """
    return _masks(_of_table(policies, database, table)) if policies else {}


def lake_form_of(policies: Sequence[ColumnPolicy], database: str, table: str) -> LakeForm:
    """Return the names and types that a table's columns have in the lake, with copies of the table as ``masks_of`` has
    them."""
    if not forms_any(policies):
        return AS_SERVED
    own = [(policy.columns.rpartition(".")[2].lower(), policy) for policy in _of_table(policies, database, table)]
    return LakeForm(
        {column: policy.rename for column, policy in own if policy.rename is not None},
        {column: policy.type for column, policy in own if policy.type is not None},
    )


def _of_table(policies: Sequence[ColumnPolicy], database: str, table: str) -> list[ColumnPolicy]:
    """Return the entries that match columns of a table, or of the one of which it is a copy."""
    if hides_original(table):
        return [policy for policy in policies if names.matches_database(_tables(policy), database)]
    own = _matching(policies, database, table)
    changed = changed_table(table)
    return own if changed is None else [*own, *_matching(policies, database, changed)]


def _matching(policies: Sequence[ColumnPolicy], database: str, table: str) -> list[ColumnPolicy]:
    return [policy for policy in policies if names.matches(_tables(policy), database, table)]


def _tables(policy: ColumnPolicy) -> str:
    return policy.columns.rpartition(".")[0]


def _masks(policies: Iterable[ColumnPolicy]) -> Mapping[str, Mask]:
    masks: dict[str, Mask] = {}
    for policy in policies:
        column = policy.columns.rpartition(".")[2].lower()
        if (mask := policy.action()) is not None:
            masks[column] = mask
    return masks
