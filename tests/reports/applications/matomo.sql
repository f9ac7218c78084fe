-- Visits with addresses as bytes, wide tables changed many columns at a time, archives by month made like the last one.
CREATE TABLE log_visit (idvisit INTEGER(10) UNSIGNED NOT NULL AUTO_INCREMENT, idsite INTEGER(10) UNSIGNED NOT NULL, idvisitor BINARY(8) NOT NULL, visit_last_action_time DATETIME NOT NULL, config_id BINARY(8) NOT NULL, location_ip VARBINARY(16) NOT NULL, visit_total_time SMALLINT(5) UNSIGNED NOT NULL, location_latitude decimal(9, 6) DEFAULT NULL, visitor_localtime TIME NOT NULL, config_flash TINYINT(1) NOT NULL, custom_var_k1 VARCHAR(200) DEFAULT NULL, PRIMARY KEY(idvisit), INDEX index_idsite_idvisitor (idsite, idvisitor)) DEFAULT CHARSET=utf8mb3;
CREATE TABLE log_action (idaction INTEGER(10) UNSIGNED NOT NULL AUTO_INCREMENT, name TEXT, hash INTEGER(10) UNSIGNED NOT NULL, type TINYINT UNSIGNED NULL, url_prefix TINYINT(2) NULL, PRIMARY KEY(idaction), INDEX index_type_hash (type, hash)) DEFAULT CHARSET=utf8mb3;
CREATE TABLE log_conversion (idvisit int(10) unsigned NOT NULL, idgoal int(10) NOT NULL, buster int unsigned NOT NULL, idorder varchar(100) default NULL, revenue float default NULL, server_time datetime NOT NULL, PRIMARY KEY (idvisit, idgoal, buster), UNIQUE KEY unique_idsite_idorder (idorder)) DEFAULT CHARSET=utf8mb3;
CREATE TABLE archive_numeric_2024_01 (idarchive INTEGER UNSIGNED NOT NULL, name VARCHAR(255) NOT NULL, idsite INTEGER UNSIGNED NULL, date1 DATE NULL, date2 DATE NULL, period TINYINT UNSIGNED NULL, ts_archived DATETIME NULL, value DOUBLE NULL, PRIMARY KEY(idarchive, name)) DEFAULT CHARSET=utf8mb3;
CREATE TABLE archive_blob_2024_01 (idarchive INTEGER UNSIGNED NOT NULL, name VARCHAR(255) NOT NULL, date1 DATE NULL, value MEDIUMBLOB NULL, PRIMARY KEY(idarchive, name)) DEFAULT CHARSET=utf8mb3;
CREATE TABLE `option` (option_name VARCHAR(255) NOT NULL, option_value LONGTEXT NOT NULL, autoload TINYINT NOT NULL DEFAULT '1', PRIMARY KEY(option_name), INDEX autoload(autoload)) DEFAULT CHARSET=utf8mb3;
INSERT INTO log_visit (idsite, idvisitor, visit_last_action_time, config_id, location_ip, visit_total_time, location_latitude, visitor_localtime, config_flash) VALUES (1, 0x1122334455667700, '2024-01-01 10:00:00', 0x0000000000000000, 0x7F000001, 65535, -33.868800, '10:00:00', 1), (1, 0x2020202020202020, '2024-01-02 10:00:00', 0xFF00000000000000, 0x20010DB8000000000000000000000000, 0, NULL, '23:59:59', 0);
INSERT INTO log_action (name, hash, type, url_prefix) VALUES ('example.org/größe', 4294967295, 1, 2), ('Title', 1, 4, NULL), (NULL, 0, NULL, NULL);
INSERT INTO log_conversion VALUES (1, 0, 5, 'o1', 49.99, '2024-01-01 10:00:00'), (2, -1, 0, NULL, NULL, '2024-01-02 10:00:00');
INSERT INTO archive_numeric_2024_01 VALUES (1, 'nb_visits', 1, '2024-01-01', '2024-01-31', 3, '2024-01-31 23:00:00', 2), (1, 'done', 1, '2024-01-01', '2024-01-31', 3, NULL, 1);
INSERT INTO archive_blob_2024_01 VALUES (1, 'Actions_actions', '2024-01-01', 0x789C4BCB2F01), (1, 'empty', NULL, NULL);
INSERT INTO `option` VALUES ('version_core', '3.14.1', 1), ('lock', '', 0);
-- snapshot
ALTER TABLE log_visit ADD COLUMN profilable TINYINT(1) NULL, ADD COLUMN visit_total_interactions MEDIUMINT UNSIGNED DEFAULT 0, MODIFY COLUMN visit_total_time INT(11) UNSIGNED NOT NULL, MODIFY COLUMN idvisit BIGINT(10) UNSIGNED NOT NULL AUTO_INCREMENT, MODIFY COLUMN location_latitude DECIMAL(9, 6) NULL DEFAULT NULL AFTER config_id, DROP COLUMN config_flash, CHANGE COLUMN custom_var_k1 custom_dimension_1 VARCHAR(255) DEFAULT NULL, ADD INDEX index_idsite_config (idsite, config_id);
UPDATE log_visit SET profilable = 1, visit_total_time = 70000, custom_dimension_1 = 'x' WHERE idvisit = 1;
INSERT INTO log_visit (idvisit, idsite, idvisitor, visit_last_action_time, config_id, location_ip, visit_total_time, visitor_localtime) VALUES (4294967297, 2, 0x00, '2024-02-01 00:00:00', 0x01, '', 1, '00:00:00');
ALTER TABLE log_conversion MODIFY idvisit BIGINT(10) UNSIGNED NOT NULL, MODIFY revenue DOUBLE DEFAULT NULL, ADD COLUMN pageviews_before SMALLINT UNSIGNED DEFAULT NULL;
INSERT INTO log_conversion VALUES (4294967297, 1, 1, 'o2', 0.1, '2024-02-01 00:00:00', 3);
CREATE TABLE IF NOT EXISTS archive_numeric_2024_02 LIKE archive_numeric_2024_01;
CREATE TABLE IF NOT EXISTS archive_blob_2024_02 LIKE archive_blob_2024_01;
INSERT INTO archive_numeric_2024_02 SELECT idarchive + 1, name, idsite, '2024-02-01', '2024-02-29', period, '2024-03-01 00:00:00', value / 3 FROM archive_numeric_2024_01;
DELETE FROM archive_numeric_2024_01 WHERE name = 'done';
INSERT INTO `option` VALUES ('version_core', '4.0.0', 1) ON DUPLICATE KEY UPDATE option_value = '4.0.0';
-- sync
ALTER TABLE log_action CONVERT TO CHARACTER SET utf8mb4;
ALTER TABLE archive_blob_2024_01 CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, MODIFY value LONGBLOB NULL;
ALTER TABLE archive_numeric_2024_02 ADD COLUMN ts_invalidated DATETIME NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (idarchive, name, period);
INSERT INTO archive_numeric_2024_02 (idarchive, name, period, value) VALUES (2, 'done', 1, 1e-300), (2, 'done', 2, -1.5);
UPDATE log_action SET name = '🍪' WHERE type IS NULL;
CREATE TABLE archive_invalidations (idinvalidation BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, name VARCHAR(255) NOT NULL, date1 DATE NOT NULL, status TINYINT(1) UNSIGNED DEFAULT 0, report VARCHAR(255) NULL, PRIMARY KEY(idinvalidation)) DEFAULT CHARSET=utf8mb4;
INSERT INTO archive_invalidations (name, date1) SELECT DISTINCT name, date1 FROM archive_numeric_2024_02 WHERE date1 IS NOT NULL;
DROP TABLE IF EXISTS archive_numeric_2024_01, archive_blob_2024_01, archive_numeric_2023_12;
DELETE FROM log_visit WHERE idsite = 1 ORDER BY idvisit LIMIT 1;
-- gone archive_numeric_2024_01 archive_blob_2024_01
