"""Reading YAML: a key may occur only once, and errors name line, key, what was found and what is wanted.

Errors don't repeat values of keys that are unknown or may be secrets, nor logins before an ``@``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from binlake.errors import ConfigurationError, KeyProblem

NAME = r"^[A-Za-z][A-Za-z0-9_-]{0,62}$"
CATALOG = r"^[A-Za-z_][A-Za-z0-9_]*$"
MEMORY = r"^[1-9]\d*[kmgtKMGT]$"
DOTTED = r"^[A-Za-z_]\w*([.][A-Za-z_]\w*)+$"
WEB = r"^https?://"
REGION = r"^[a-z]{2,8}(-[a-z]+)+-\d+$"
"""Of AWS: it becomes a part of a host's name."""
_IN_WORDS = {
    NAME: "a name: a letter, then letters, digits, _ or -, 63 of them at most",
    CATALOG: "a name: a letter or _, then letters, digits or _",
    MEMORY: "a whole number and k, m, g or t, such as 4g",
    DOTTED: "a dotted name, such as package.module.Name",
    REGION: "a region of AWS, such as eu-central-1",
    WEB: "an address that begins with http:// or https://",
}
_SECRET = re.compile(r"(?i)(secret|password|passwd|token|access.?key)")
_LOGIN = re.compile(r"(://|['\"](?!\w+://)(?=[^\s'\"@]*:))[^\s'\"]*@")
"""Also of an address whose scheme was forgotten."""
_MOST_LETTERS = 60
_Model = TypeVar("_Model", bound=BaseModel)
KeyPath = tuple[int | str, ...]
"""A path in a document: keys, and indexes of list items."""


class _Loader(yaml.SafeLoader):
    """A loader that reports keys that are twice there or no text, and impossible values (a 13th month, half of a
    surrogate pair) with their place in the file."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from error

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        value = super().construct_scalar(node)
        value.encode()
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if before := lines.get(key.value):
                    twice = f"the key {key.value!r} is written twice, first in line {before}"
                    raise yaml.constructor.ConstructorError(None, None, twice, key.start_mark)
                lines[key.value] = key.start_mark.line + 1
                if key.tag == "tag:yaml.org,2002:null" and key.value == "null":  # a policy on columns
                    key.tag = "tag:yaml.org,2002:str"
                if key.tag != "tag:yaml.org,2002:str":  # a number, a date, or a word that YAML takes for true or false
                    no_text = f"a key must be text: write '{key.value}':"
                    raise yaml.constructor.ConstructorError(None, None, no_text, key.start_mark)
        return super().construct_mapping(node, deep)


@dataclass(frozen=True)
class YamlFile:
    """A parsed YAML file, with the lines of its keys."""

    path: Path
    document: dict[Any, Any]
    _root: yaml.Node

    def model(self, kind: type[_Model]) -> _Model:
        """Return the document as a model. Raises ConfigurationError with a line for each wrong key."""
        try:
            return kind.model_validate(self.document)
        except ValidationError as error:
            problems = tuple(self._problem(kind, problem) for problem in error.errors(include_url=False))
            raise ConfigurationError(
                f"{self.path}:\n" + "\n".join(f"  {_in_a_line(problem)}" for problem in problems),
                remedy="fix these keys; binlake help yaml and settings list them",
                problems=problems,
            ) from None

    def _problem(self, kind: type[BaseModel], error: Mapping[str, Any]) -> KeyProblem:
        place: KeyPath = error["loc"]
        text = _LOGIN.sub(r"\1…@", explained(kind, error))
        named = ".".join(map(str, self._written(place))).removesuffix(
            ".[key]"
        )  # pydantic's for a key that isn't as it should be
        return KeyProblem(self.line(place), named, text)

    def _written(self, place: KeyPath) -> KeyPath:
        """Return a path without the parts before the last that pydantic adds for alternatives."""
        node, written = self._root, list[int | str]()
        for part in place[:-1]:
            below = _below(node, part)
            if below is not None:
                node, written = below[0], [*written, part]
        return (*written, *place[-1:])

    def line(self, place: KeyPath) -> int:
        """Return the line of a key, or of the mapping that lacks it; parts that aren't in the file, which pydantic adds
        for alternatives, are ignored."""
        node, line = self._root, self._root.start_mark.line + 1
        for part in place:
            below = _below(node, part)
            if below is not None:
                node, line = below
        return line


def _in_a_line(problem: KeyProblem) -> str:
    return ": ".join(filter(None, (f"line {problem.line}", problem.key, problem.text)))


def _below(node: yaml.Node, part: int | str) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return value, key.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part].start_mark.line + 1
    return None


def read(path: str | Path) -> YamlFile:
    """Read a file. Raises ConfigurationError if it isn't a YAML mapping."""
    try:
        return parsed(Path(path).read_bytes(), path)
    except OSError as error:
        raise ConfigurationError(f"can't read {path}: {error.strerror}", remedy="give --config FILE") from error


def parsed(text: bytes, path: str | Path) -> YamlFile:
    """Parse the text of a file, which need not be written yet. Raises ConfigurationError."""
    loader = None
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        document = loader.construct_document(root) if root is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = f"this isn't YAML as it should be: {error.problem or error.context}"
        problem = KeyProblem(mark.line + 1 if mark else 0, "", what)
        raise ConfigurationError(f"{path}{where}: {what}", remedy="fix that place", problems=(problem,)) from error
    except RecursionError as error:
        raise ConfigurationError(f"{path}: brackets or lists are nested too deep", remedy="close them") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} isn't YAML: {error}", remedy="fix the place named above") from error
    finally:
        if loader is not None:
            loader.dispose()
    if root is None or not isinstance(document, dict):
        raise ConfigurationError(f"{path} holds no settings", remedy="binlake help yaml shows a whole file")
    return YamlFile(Path(path), document, root)


# words ---------------------------------------------------------------------------------------------------------------
def explained(kind: type[BaseModel], error: Mapping[str, Any]) -> str:
    """Return a message on what was found and what is wanted, in plainer words than pydantic's."""
    place, what, context = error["loc"], error["type"], error.get("ctx") or {}
    if what == "extra_forbidden":
        return _unknown(str(place[-1]), _keys(_model_at(kind, place[:-1])))
    if what == "missing":
        return "this key is missing" + _example(str(place[-1]))
    if what == "value_error":
        return str(context["error"])
    if what in ("union_tag_not_found", "union_tag_invalid"):
        key = str(context["discriminator"]).strip("'")
        if what == "union_tag_not_found":
            return f"its key {key} is missing"
        return f"found {key}: {context['tag']}; wanted {context['expected_tags']}"
    return f"found {_shown_value(place, error['input'])}; wanted {_wanted(what, context, error['msg'])}"


def _unknown(key: str, known: Sequence[str]) -> str:
    close = get_close_matches(key.lower(), known, 1)
    if close:
        return f"there is no key {key!r}; did you mean {close[0]!r}?"
    return f"there is no key {key!r}; there are {', '.join(known)}"


def _example(key: str) -> str:
    examples = {
        "name": "name: shop",
        "connection": "connection: shop_mysql",
        "include": 'include: ["shop.*"]',
        "path": "path: ./lake",
        "source": "source: {name: shop, connection: shop_mysql, server_id: 4001}",
        "tables": 'tables: {include: ["shop.*"]}',
        "lake": "lake: {path: ./lake}",
    }
    return f"; write {examples[key]}" if key in examples else ""


def _shown_value(place: KeyPath, value: Any) -> str:
    if any(_SECRET.search(str(part)) for part in place):
        return "another value"
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        return "keys" if isinstance(value, dict) else ("an empty list" if not value else "a list")
    said = str(value).lower() if isinstance(value, bool) else repr(value)
    return said if len(said) <= _MOST_LETTERS else said[:_MOST_LETTERS] + "…"


def _wanted(what: str, context: Mapping[str, Any], message: str) -> str:
    words = {
        "string_type": "text (a number or a word such as yes and no in quotes)",
        "list_type": "a list, such as [a, b]",
        "dict_type": "keys with values, such as {a: b}",
        "model_type": "keys with values, such as {a: b}",
        "model_attributes_type": "keys with values, such as {a: b}",
        "bool_type": "true or false",
        "bool_parsing": "true or false",
        "too_short": "at least one",
        "string_too_short": "a text that isn't empty",
        "greater_than_equal": f"a number not below {_number(context.get('ge'))}",
        "greater_than": f"a number above {_number(context.get('gt'))}",
        "less_than_equal": f"a number not above {_number(context.get('le'))}",
    }
    if what == "literal_error":
        return str(context["expected"]).replace("'", "")
    if what == "string_pattern_mismatch":
        return _IN_WORDS.get(context["pattern"], f"what {context['pattern']} matches")
    if what.startswith("int_"):
        return "a whole number"
    if what.startswith(("float_", "finite_")):
        return "a number"
    return words.get(what, message)


def _number(number: Any) -> Any:
    """Return a number as people write it: 0, not 0.0."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


# keys ----------------------------------------------------------------------------------------------------------------
def _keys(model: type[BaseModel] | None) -> list[str]:
    return list(model.model_fields) if model else []


def _model_at(kind: type[BaseModel], place: KeyPath) -> type[BaseModel] | None:
    """Return the model whose fields are the keys below a place; None if there is none."""
    kinds = [kind]
    for part in place:
        fields = [model.model_fields[str(part)].annotation for model in kinds if str(part) in model.model_fields]
        tagged = [model for model in kinds if part in _tags(model)]
        kinds = tagged or [model for annotation in fields for model in _models(annotation)] or kinds
    return kinds[0] if kinds else None


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        if get_origin(annotation) is not Literal:
            yield from _models(argument)


def _tags(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("type") or model.model_fields.get("kind")
    return get_args(field.annotation) if field else ()
