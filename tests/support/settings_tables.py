"""The settings of the YAML, as its pydantic models have them and as the README pages list them.

A page lists the settings of one section in a table below a heading such as ``## `maintain` ``: the key, what it may
be, its default, and the meaning. All but the meaning follows from the models.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo

from binlake.config.mirrored_tables import ELSEWHERE, ColumnPattern
from binlake.config.orchestration import Duration, Schedule
from binlake.config.policies import Policy
from binlake.config.section import TablePattern

HEADER = "| key | values | default | meaning |"
PATTERNS = {
    TablePattern: "table pattern",
    ColumnPattern: "column pattern",
    Schedule: "cron expression",
    Duration: "duration",
}
BASIC = {int: "whole number", float: "number", str: "text", bool: "`true`, `false`", Any: "anything"}


class Setting(NamedTuple):
    """One row of a table, without its meaning."""

    key: str
    values: str
    default: str


def settings_of(model: type[BaseModel], section: str = "") -> dict[str, list[Setting]]:
    """Return the settings below a model by section: the path of the section's key, empty for the top of the file."""
    fields = {name: field for name, field in model.model_fields.items() if field.json_schema_extra != ELSEWHERE}
    tables = {section: [setting_of(name.removesuffix("_"), field) for name, field in fields.items()]}
    for name, field in fields.items():
        path = f"{section}.{name}" if section else name
        for inner in models_in(field.annotation):
            if inner is Policy or not inner.model_fields:  # a pattern's own policies have the keys around it
                continue
            tag = inner.model_fields.get("type") or inner.model_fields.get("kind")
            is_one_of_several = tag is not None and get_origin(tag.annotation) is Literal
            of_one_type = f"{path}: {get_args(tag.annotation)[0]}" if tag and is_one_of_several else path
            tables |= settings_of(inner, of_one_type)
    return tables


def setting_of(name: str, field: FieldInfo) -> Setting:
    return Setting(name, values_of(field.annotation, tuple(field.metadata)), default_of(field))


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    if field.default is None:
        return "none"
    if isinstance(field.default, BaseModel):
        return ""
    text = field.default if isinstance(field.default, str) else json.dumps(field.default)
    return f"`{text}`"


def values_of(annotation: Any, metadata: tuple[Any, ...] = ()) -> str:
    """Return in words what a value may be. metadata: what pydantic took off the annotation, such as ``Ge``."""
    origin = get_origin(annotation)
    for validator in metadata:
        if isinstance(validator, AfterValidator) and (named := named_by(validator)):
            return named
    if origin is Annotated:
        inner, *outer = get_args(annotation)
        return values_of(
            inner, tuple(part for annotated in outer for part in (getattr(annotated, "metadata", None) or [annotated]))
        )
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if origin in (Union, types.UnionType):
        words = [values_of(choice, metadata) for choice in get_args(annotation) if choice is not type(None)]
        return " or ".join(dict.fromkeys(words))
    if origin is list:
        (item,) = get_args(annotation)
        return f"list: {values_of(item)}"
    if origin is dict:
        return "keys with values"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return BASIC[annotation] + range_of(metadata)


def named_by(validator: AfterValidator) -> str | None:
    return next((word for kind, word in PATTERNS.items() if validator in get_args(kind)), None)


def range_of(metadata: tuple[Any, ...]) -> str:
    limits = {type(limit): limit for limit in metadata if isinstance(limit, Ge | Gt | Le)}
    lowest, above, highest = limits.get(Ge), limits.get(Gt), limits.get(Le)
    words = []
    if isinstance(lowest, Ge):
        words.append(f"from {lowest.ge}")
    if isinstance(above, Gt):
        words.append(f"above {above.gt}")
    if isinstance(highest, Le):
        words.append(f"up to {highest.le}")
    return f", {' '.join(words)}" if words else ""


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that a value may be, itself or as an item."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is not Literal:
        for argument in get_args(annotation):
            yield from models_in(argument)


def tables_in(page: str) -> dict[str, list[Setting]]:
    """Return what a page lists, by section; the name of the top of the file is empty."""
    tables: dict[str, list[Setting]] = {}
    for part in re.split(r"^#+ ", page, flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        if HEADER not in text:
            continue
        (section,) = re.findall("`([^`]+)`", heading) or [""]
        lines = text[text.index(HEADER) :].splitlines()[2:]
        rows = [line.strip("|").split(" | ") for line in lines[: length_of_table(lines)]]
        tables[section] = [Setting(row[0].strip().strip("`"), row[1].strip(), row[2].strip()) for row in rows]
    return tables


def length_of_table(lines: list[str]) -> int:
    return next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))


def markdown(rows: list[Setting], meanings: dict[str, str]) -> str:
    """The table as a page has it, for a page that is written again."""
    lines = [HEADER, "|---|---|---|---|"]
    lines += [f"| `{row.key}` | {row.values} | {row.default} | {meanings.get(row.key, '')} |" for row in rows]
    return "\n".join(lines)
