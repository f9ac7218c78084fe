-- report https://github.com/zendesk/maxwell/issues/488
CREATE TABLE old_table (OldTableID BIGINT(19) PRIMARY KEY, v INT);
INSERT INTO old_table VALUES (1, 1), (2, 2);
-- snapshot
ALTER TABLE old_table RENAME TO new_table;
INSERT INTO new_table VALUES (3, 3);
ALTER TABLE new_table CHANGE OldTableID NewTableID BIGINT(19);
UPDATE new_table SET v = 10 WHERE NewTableID = 1;
DELETE FROM new_table WHERE NewTableID = 2;
-- gone old_table
