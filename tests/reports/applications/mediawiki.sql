-- A wiki: text as bytes, moments as fourteen digits, tables without a primary key that get one, names moved to tables of their own.
CREATE TABLE page (page_id int unsigned NOT NULL PRIMARY KEY AUTO_INCREMENT, page_namespace int NOT NULL, page_title varchar(255) binary NOT NULL, page_restrictions tinyblob NOT NULL, page_counter bigint unsigned NOT NULL default 0, page_random real unsigned NOT NULL, page_touched binary(14) NOT NULL default '', page_latest int unsigned NOT NULL) DEFAULT CHARSET=binary;
CREATE TABLE revision (rev_id int unsigned NOT NULL PRIMARY KEY AUTO_INCREMENT, rev_page int unsigned NOT NULL, rev_text_id int unsigned NOT NULL, rev_comment varbinary(767) NOT NULL, rev_user int unsigned NOT NULL default 0, rev_user_text varbinary(255) NOT NULL default '', rev_timestamp binary(14) NOT NULL default '', rev_len int unsigned) MAX_ROWS=10000000 AVG_ROW_LENGTH=1024 DEFAULT CHARSET=binary;
CREATE TABLE `text` (old_id int unsigned NOT NULL PRIMARY KEY AUTO_INCREMENT, old_text mediumblob NOT NULL, old_flags tinyblob NOT NULL) DEFAULT CHARSET=binary;
CREATE TABLE categorylinks (cl_from int unsigned NOT NULL default 0, cl_to varbinary(255) NOT NULL default '', cl_sortkey varbinary(230) NOT NULL default '', cl_timestamp timestamp NOT NULL, cl_type ENUM('page', 'subcat', 'file') NOT NULL, UNIQUE INDEX cl_from (cl_from, cl_to)) DEFAULT CHARSET=binary;
CREATE TABLE user_newtalk (user_id int NOT NULL default 0, user_ip varbinary(40) NOT NULL default '', user_last_timestamp varbinary(14) NULL default NULL, INDEX (user_id)) DEFAULT CHARSET=binary;
CREATE TABLE image (img_name varbinary(255) NOT NULL default '' PRIMARY KEY, img_size int unsigned NOT NULL default 0, img_media_type ENUM("UNKNOWN", "BITMAP", "DRAWING", "AUDIO", "VIDEO") default NULL, img_metadata mediumblob NOT NULL, img_sha1 varbinary(32) NOT NULL default '') DEFAULT CHARSET=binary;
INSERT INTO page (page_namespace, page_title, page_restrictions, page_random, page_touched, page_latest) VALUES (0, 'Main_Page', '', 0.123456789012, '20080101000000', 1), (1, 'Größe', 'edit=sysop', 1, '20080102000000', 2);
INSERT INTO revision (rev_page, rev_text_id, rev_comment, rev_user, rev_user_text, rev_timestamp, rev_len) VALUES (1, 1, 'start', 1, 'WikiSysop', '20080101000000', 5), (2, 2, _binary 'bin äöü', 0, '127.0.0.1', '20080102000000', NULL), (1, 3, '', 1, 'WikiSysop', '20080103000000', 7);
INSERT INTO `text` (old_text, old_flags) VALUES ('hello', 'utf-8'), (0x4BCB2F0100, 'utf-8,gzip'), ('', '');
INSERT INTO categorylinks VALUES (1, 'A', 'MAIN', '2008-01-01 00:00:00', 'page'), (2, 'A', 'G', '2008-01-02 00:00:00', 'subcat');
INSERT INTO user_newtalk VALUES (1, '', NULL), (1, '', NULL), (0, '127.0.0.1', '20080102000000');
INSERT INTO image VALUES ('A.png', 100, 'BITMAP', 0x00FF00, ''), ('B.ogg', 5000000, 'AUDIO', '', 'x');
-- snapshot
CREATE TABLE actor (actor_id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, actor_user int unsigned, actor_name varchar(255) binary NOT NULL, UNIQUE KEY (actor_user), UNIQUE KEY (actor_name)) DEFAULT CHARSET=binary;
ALTER TABLE revision ADD COLUMN rev_actor bigint unsigned NOT NULL DEFAULT 0 AFTER rev_user_text, ADD INDEX rev_actor_timestamp (rev_actor, rev_timestamp, rev_id);
INSERT INTO actor (actor_user, actor_name) SELECT DISTINCT NULLIF(rev_user, 0), rev_user_text FROM revision ORDER BY rev_user_text;
UPDATE revision JOIN actor ON actor_name = rev_user_text SET rev_actor = actor_id;
ALTER TABLE revision DROP COLUMN rev_user, DROP COLUMN rev_user_text, ALTER COLUMN rev_actor DROP DEFAULT;
ALTER TABLE categorylinks DROP INDEX cl_from, ADD PRIMARY KEY (cl_from, cl_to);
ALTER TABLE categorylinks ADD COLUMN cl_collation varbinary(32) NOT NULL default '', MODIFY cl_type ENUM('page', 'subcat', 'file', 'media') NOT NULL;
UPDATE categorylinks SET cl_collation = 'uppercase' WHERE cl_collation = '';
DELETE FROM user_newtalk WHERE user_id = 1 LIMIT 1;
ALTER TABLE page DROP COLUMN page_counter, ADD COLUMN page_lang varbinary(35) DEFAULT NULL, MODIFY page_title varbinary(255) NOT NULL;
INSERT INTO page (page_namespace, page_title, page_restrictions, page_random, page_touched, page_latest, page_lang) VALUES (0, _binary '日本', '', 0.5, '20190101000000', 4, 'ja');
-- sync
ALTER TABLE revision MODIFY rev_id bigint unsigned NOT NULL AUTO_INCREMENT, DROP COLUMN rev_text_id, CHANGE rev_comment rev_comment_text blob NULL;
INSERT INTO revision (rev_page, rev_comment_text, rev_actor, rev_timestamp) VALUES (3, NULL, 2, '20200101000000');
ALTER TABLE page DROP COLUMN page_restrictions;
ALTER TABLE image MODIFY img_media_type ENUM("UNKNOWN", "BITMAP", "DRAWING", "AUDIO", "VIDEO", "MULTIMEDIA", "3D") default NULL, MODIFY img_size bigint unsigned NOT NULL default 0;
INSERT INTO image VALUES ('C.stl', 18446744073709551615, '3D', '{}', 'y');
ALTER TABLE user_newtalk MODIFY user_last_timestamp binary(14) NULL default NULL;
INSERT INTO user_newtalk VALUES (5, '::1', '20200101000000');
RENAME TABLE `text` TO content_text;
UPDATE content_text SET old_flags = CONCAT(old_flags, ',external') WHERE old_id = 1;
-- gone text
-- resnapshot user_newtalk
