// The settings that the form for a new source has: what each is called, and what its values mean.

export const ADDRESS = [
  { name: "host", label: "Host" },
  { name: "port", label: "Port (empty: 3306)", type: "number" },
  { name: "login", label: "Login" },
  { name: "password", label: "Password", type: "password", hint: "Kept as an Airflow connection; the YAML has only its id" },
];

export const PATTERNS = [
  { name: "include", label: "More tables, by patterns", lines: true, hint: "One a line: database.table with * and ?, such as shop.order_*. Tables that are created later are mirrored, too" },
  { name: "tables.exclude", label: "Tables to leave out", lines: true, hint: "One a line, such as shop.tmp_*. They are left out even if they are picked above" },
  { name: "tables.exclude_columns", label: "Columns to leave out", lines: true, hint: "One a line: database.table.column, such as shop.*.password. Their values never leave the server" },
];

export const SOURCE = [
  { name: "name", label: "Name of the source", required: true, hint: "Letters, digits, _ and -. The file and the DAGs get this name" },
  { name: "lake", label: "Lake", required: true, hint: "A folder, or the URL of an object store, such as s3://bucket/lake" },
];

export const WORK = [
  { name: "schedule", label: "Schedule of the syncs", required: true, value: "0 * * * *", hint: "Cron, in UTC" },
  { name: "follows", type: "checkbox", label: "Follow the log all the time", hint: "One process reads the log as it grows, and holds a worker slot" },
  { name: "follow.every", label: "Look at the log every", hint: "Such as 1s or 500ms" },
];

export const VERIFY = [
  { name: "verify.schedule", label: "Schedule of the comparisons with the server", hint: "Cron, in UTC; empty: when somebody asks for one" },
  { name: "verify.repair", label: "Rows that differ from the server" },
];

export const ALARMS = [
  { name: "airflow.lag_minutes", label: "Alarm when it is behind by more than (minutes)", type: "number", hint: "Empty: no alarm" },
  { name: "airflow.retention_hours", label: "Alarm when the server keeps the log that is needed for less than (hours)", type: "number", hint: "Empty: no alarm. Who is notified is set in the YAML: airflow.notify" },
];

// By setting: what happens, and what each choice does.
export const CHOICES = {
  "verify.repair": ["Rows that differ from the server", { ask: "are repaired when somebody asks for it", auto: "are repaired by the comparison", never: "are never repaired" }],
  "policies.on_drop_column": ["A column is dropped on the server", { drop: "drop it in the lake", keep: "keep it in the lake, empty in newer rows" }],
  "policies.on_drop_table": ["A table is dropped on the server", { keep: "keep it in the lake", drop: "remove it from the lake" }],
  "policies.on_truncate": ["A table is truncated", { follow: "empty it in the lake", stop: "stop the table" }],
  "policies.on_unfollowable": ["A statement changes rows in a way that the log doesn't show", { resnapshot: "take a new snapshot of the table", stop: "stop the table" }],
  "policies.without_key": ["A table has no key", { exact: "find its rows by all their values", append: "append rows, and stop the table at an update or delete" }],
  "policies.on_unlogged_cascade": ["A foreign key changes rows without a trace in the log", { stop: "don't mirror the table", resnapshot: "take a new snapshot after each batch that may concern it", derive: "derive the changes from the parent's" }],
  "policies.on_untold_column": ["The log lacks the values of a virtual column", { leave_out: "leave the column out", stop: "don't mirror the table" }],
  "policies.on_decode_failure": ["A table's part of the log can't be read", { stop_table: "stop the table, the others continue", stop_run: "end the run, the next one tries again" }],
  "policies.on_merge_failure": ["A table's rows can't be merged", { stop_table: "stop the table, the others continue", stop_run: "end the run, the next one tries again" }],
  "policies.on_commit_failure": ["Storage fails where a table is written", { stop_table: "stop the table, the others continue", stop_run: "end the run, the next one tries again" }],
  invalid_dates: ["A date is invalid, such as 0000-00-00", { fail: "stop the table", keep_text: "write NULL, and the date as text into a column beside it" }],
  invalid_text: ["A text isn't valid in its character set", { fail: "stop the table", keep_bytes: "write NULL, and the bytes into a column beside it" }],
};
