-- A school: numbers with widths, every table converted column by column, fields renamed by the upgrade's own editor.
CREATE TABLE mdl_user (id BIGINT(10) NOT NULL auto_increment, auth VARCHAR(20) NOT NULL DEFAULT 'manual', confirmed TINYINT(1) NOT NULL DEFAULT 0, username VARCHAR(100) NOT NULL DEFAULT '', idnumber VARCHAR(64) NOT NULL DEFAULT '', firstaccess BIGINT(10) NOT NULL DEFAULT 0, picture TINYINT(1) NOT NULL DEFAULT 0, description LONGTEXT, timezone VARCHAR(100) NOT NULL DEFAULT '99', CONSTRAINT PRIMARY KEY (id)) DEFAULT CHARACTER SET utf8mb3 COLLATE utf8mb3_unicode_ci COMMENT='One record for each person';
CREATE TABLE mdl_grade_grades (id BIGINT(10) NOT NULL auto_increment, itemid BIGINT(10) NOT NULL, userid BIGINT(10) NOT NULL, rawgrade NUMERIC(10,5), rawgrademax NUMERIC(10,5) NOT NULL DEFAULT 100, hidden BIGINT(10) NOT NULL DEFAULT 0, feedback MEDIUMTEXT, PRIMARY KEY (id), UNIQUE KEY u (userid, itemid)) DEFAULT CHARACTER SET utf8mb3 COLLATE utf8mb3_unicode_ci;
CREATE TABLE mdl_log (id BIGINT(10) NOT NULL auto_increment, time BIGINT(10) NOT NULL DEFAULT 0, userid BIGINT(10) NOT NULL DEFAULT 0, ip VARCHAR(15) NOT NULL DEFAULT '', module VARCHAR(20) NOT NULL DEFAULT '', info VARCHAR(255) NOT NULL DEFAULT '', PRIMARY KEY (id)) DEFAULT CHARACTER SET utf8mb3 COLLATE utf8mb3_unicode_ci;
CREATE TABLE mdl_assignment (id BIGINT(10) NOT NULL auto_increment, course BIGINT(10) NOT NULL DEFAULT 0, name VARCHAR(255) NOT NULL DEFAULT '', description TEXT NOT NULL, format SMALLINT(4) NOT NULL DEFAULT 0, grade DOUBLE(11, 2), PRIMARY KEY (id)) DEFAULT CHARACTER SET utf8mb3 COLLATE utf8mb3_unicode_ci;
INSERT INTO mdl_user (username, description) VALUES ('guest', 'Gäste'), ('admin', NULL), ('student', '');
INSERT INTO mdl_grade_grades (itemid, userid, rawgrade, feedback) VALUES (1, 2, 88.5, 'gut'), (1, 3, NULL, NULL), (2, 3, 99999.99999, '中');
INSERT INTO mdl_log (time, userid, ip, module) VALUES (1300000000, 2, '127.0.0.1', 'course'), (1300000001, 3, '10.0.0.1', 'quiz');
INSERT INTO mdl_assignment (course, name, description, grade) VALUES (1, 'Essay', 'Write.', 12.34), (2, 'Sum', '', -0.5);
-- snapshot
ALTER TABLE mdl_assignment CHANGE description intro LONGTEXT COLLATE utf8mb3_unicode_ci NULL;
ALTER TABLE mdl_assignment CHANGE format introformat SMALLINT(4) NOT NULL DEFAULT 0;
ALTER TABLE mdl_assignment RENAME TO mdl_assign;
UPDATE mdl_assign SET intro = NULL WHERE intro = '';
ALTER TABLE mdl_user ADD lastnamephonetic VARCHAR(255) COLLATE utf8mb3_unicode_ci AFTER timezone, MODIFY picture BIGINT(10) NOT NULL DEFAULT 0 AFTER firstaccess, MODIFY idnumber VARCHAR(255) COLLATE utf8mb3_unicode_ci NOT NULL DEFAULT '';
UPDATE mdl_user SET picture = 4294967296, lastnamephonetic = 'ガード' WHERE id = 2;
ALTER TABLE mdl_log MODIFY ip VARCHAR(45) COLLATE utf8mb3_unicode_ci NOT NULL DEFAULT '', ALGORITHM=INPLACE;
INSERT INTO mdl_log (time, userid, ip) VALUES (1400000000, 2, '0000:0000:0000:0000:0000:ffff:192.168.100.228');
CREATE TEMPORARY TABLE mdl_temp_grades (id BIGINT(10) NOT NULL auto_increment PRIMARY KEY, userid BIGINT(10)) AS SELECT userid FROM mdl_grade_grades;
INSERT INTO mdl_log (time, userid, module) SELECT 1400000001, userid, 'temp' FROM mdl_temp_grades;
DROP TEMPORARY TABLE mdl_temp_grades;
ALTER TABLE mdl_grade_grades MODIFY feedback LONGTEXT COLLATE utf8mb3_unicode_ci;
-- sync
ALTER TABLE mdl_user ROW_FORMAT=DYNAMIC;
ALTER TABLE mdl_user DEFAULT CHARACTER SET utf8mb4 DEFAULT COLLATE = utf8mb4_unicode_ci;
ALTER TABLE mdl_user CHANGE auth auth varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL DEFAULT 'manual', CHANGE username username varchar(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL DEFAULT '';
ALTER TABLE mdl_user CHANGE description description longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci;
INSERT INTO mdl_user (username, description) VALUES ('owl🦉', '🏫');
ALTER TABLE mdl_log CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci;
ALTER TABLE mdl_assign MODIFY grade BIGINT(10), ADD duedate BIGINT(10) NOT NULL DEFAULT 0 AFTER introformat;
INSERT INTO mdl_assign (course, name, grade) VALUES (3, 'Last', 100);
DELETE FROM mdl_grade_grades WHERE rawgrade IS NULL;
ALTER TABLE mdl_grade_grades ADD aggregationstatus VARCHAR(10) COLLATE utf8mb3_unicode_ci NOT NULL DEFAULT 'unknown', ADD aggregationweight NUMERIC(10,5);
UPDATE mdl_grade_grades SET aggregationweight = rawgrade / 3;
-- gone mdl_assignment
-- resnapshot mdl_assign
