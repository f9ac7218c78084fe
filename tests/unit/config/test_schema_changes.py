"""What the YAML says of schema changes: the last entry that names a kind of change decides."""

import pytest
from pydantic import ValidationError

from binlake.config.schema_changes import FOLLOW_ALL, SchemaChangeEntry, policy_of
from binlake.schema.table import TableName

ENTRIES = [
    SchemaChangeEntry.model_validate(entry)
    for entry in (
        {"tables": "shop.*", "drop": "freeze", "retype": "freeze"},
        {"tables": "shop.audit_*", "drop": "follow", "add": "freeze"},
    )
]


def test_later_entries_override_what_they_name() -> None:
    policy = policy_of(ENTRIES, TableName("shop", "audit_2026"))
    assert (policy.add, policy.drop, policy.rename, policy.retype) == ("freeze", "follow", "follow", "freeze")


def test_what_no_entry_names_is_followed() -> None:
    assert policy_of(ENTRIES, TableName("crm", "t")) == policy_of([], TableName("shop", "t")) == FOLLOW_ALL


def test_of_several_changes_the_strictest_action_counts() -> None:
    policy = policy_of(ENTRIES, TableName("shop", "t"))
    assert policy.strictest(["add", "drop"]) == "freeze"
    assert policy.strictest(["add", "rename"]) == policy.strictest([]) == "follow"


@pytest.mark.parametrize("entry", [{"tables": "shop.*"}, {"add": "freeze"}, {"tables": "shop.*", "add": "never"}])
def test_an_entry_without_a_meaning_is_refused(entry: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        SchemaChangeEntry.model_validate(entry)
