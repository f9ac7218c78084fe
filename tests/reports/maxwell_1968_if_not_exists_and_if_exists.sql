-- report https://github.com/zendesk/maxwell/issues/1968
-- report https://github.com/zendesk/maxwell/issues/2155
-- report https://github.com/zendesk/maxwell/issues/2039
-- servers mariadb
CREATE TABLE task (id INT PRIMARY KEY, phone VARCHAR(10), snoozed_until DATETIME);
INSERT INTO task VALUES (1, '1', '2023-01-16 10:00:00');
-- snapshot
ALTER TABLE task ADD COLUMN IF NOT EXISTS deleted_at DATETIME NULL, ADD COLUMN IF NOT EXISTS phone INT;
INSERT INTO task VALUES (2, '2', NULL, '2023-01-17 00:00:00');
ALTER TABLE task MODIFY COLUMN IF EXISTS phone VARCHAR(20) DEFAULT '', MODIFY COLUMN IF EXISTS nothing INT;
INSERT INTO task (id) VALUES (3);
ALTER TABLE task DROP COLUMN IF EXISTS snoozed_until, DROP COLUMN IF EXISTS nothing;
ALTER TABLE IF EXISTS task CHANGE COLUMN IF EXISTS deleted_at gone_at DATETIME(3);
ALTER TABLE IF EXISTS nowhere ADD x INT;
INSERT INTO task VALUES (4, 'four', '2023-01-17 00:00:00.125');
