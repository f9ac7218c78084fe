"""Errors of a form, each beside the field that it is about, in the words of a form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel

from binlake.config.yaml_file import explained
from binlake.errors import KeyProblem
from binlake_airflow.page.remedies import Answer

LINE = r"^[^\x00-\x1f\x7f]*$"
"""The pattern of a field that has one line."""


class FieldsRefused(Exception):
    """Values of a form's fields that can't be used.

    fields: what is wrong, by the field's name; under an empty name what isn't of one field. status: of the answer.
    """

    def __init__(self, fields: Mapping[str, str], status: int = 422) -> None:
        super().__init__(fields)
        self.fields = dict(fields)
        self.status = status


def by_field(problems: Iterable[KeyProblem], fields: Mapping[str, str]) -> dict[str, str]:
    """Return problems of a YAML's keys by the fields of a form. fields: the form's, by the key that each one sets."""
    said: dict[str, list[str]] = {}
    for problem in problems:
        above = [key for key in fields if f"{problem.key}.".startswith(f"{key}.")]
        field = fields[max(above, key=len)] if above else ""
        text = problem.text if above or not problem.key else f"{problem.key}: {problem.text}"
        said.setdefault(field, []).append(text)
    return {field: "\n".join(texts) for field, texts in said.items()}


def refused(_: Request, error: Exception) -> Answer:
    """Answer a form whose fields can't be used, with the errors by field."""
    if isinstance(error, RequestValidationError):
        error = FieldsRefused(_of_request(error))
    assert isinstance(error, FieldsRefused)
    lines = [f"{field}: {text}" if field else text for field, text in error.fields.items()]
    return Answer({"detail": "\n".join(lines), "fields": error.fields}, error.status)


def _of_request(error: RequestValidationError) -> dict[str, str]:
    """Return what is wrong with a request, by field; of one whose body is no object, under an empty name."""
    fields: dict[str, str] = {}
    for problem in error.errors():
        place = problem["loc"][1:]
        field = str(place[0]) if place and isinstance(place[0], str) else ""
        fields.setdefault(field, _in_words(problem))
    return fields


def _in_words(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "extra_forbidden":
        return "there is no such field"
    if problem["type"] == "missing":
        return "this is missing"
    if problem["type"] == "string_pattern_mismatch" and problem["ctx"]["pattern"] == LINE:
        return "write it in one line, without control characters"
    return explained(BaseModel, problem)
