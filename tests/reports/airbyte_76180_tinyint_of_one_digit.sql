-- report https://github.com/airbytehq/airbyte/issues/76180
-- report https://github.com/apache/paimon/issues/1420
-- report https://github.com/airbytehq/airbyte/pull/14424
CREATE TABLE flags (id INT PRIMARY KEY, f TINYINT(1) NOT NULL DEFAULT 1, u TINYINT(1) UNSIGNED, b BOOLEAN, t TINYINT(4));
INSERT INTO flags VALUES (1, -128, 255, TRUE, -128), (2, 127, 2, FALSE, 127);
-- snapshot
INSERT INTO flags VALUES (3, 21, 21, 21, 21), (4, -1, 0, NULL, NULL);
UPDATE flags SET f = 2, b = -1 WHERE id = 1;
ALTER TABLE flags ADD g TINYINT(1) NOT NULL DEFAULT 5;
INSERT INTO flags (id, g) VALUES (5, -5);
