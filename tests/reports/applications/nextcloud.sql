-- A cloud: everything in utf8mb4_bin, integers that become big ones, primary keys that were missing.
CREATE TABLE oc_filecache (fileid INT AUTO_INCREMENT NOT NULL, storage INT DEFAULT 0 NOT NULL, path VARCHAR(4000) DEFAULT NULL, path_hash VARCHAR(32) DEFAULT '' NOT NULL, parent INT DEFAULT 0 NOT NULL, name VARCHAR(250) DEFAULT NULL, size BIGINT DEFAULT 0 NOT NULL, mtime INT DEFAULT 0 NOT NULL, encrypted INT DEFAULT 0 NOT NULL, etag VARCHAR(40) DEFAULT NULL, UNIQUE INDEX fs_storage_path_hash (storage, path_hash), PRIMARY KEY(fileid)) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ENGINE = InnoDB ROW_FORMAT = compressed;
CREATE TABLE oc_appconfig (appid VARCHAR(32) DEFAULT '' NOT NULL, configkey VARCHAR(64) DEFAULT '' NOT NULL, configvalue LONGTEXT DEFAULT NULL, PRIMARY KEY(appid, configkey)) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE TABLE oc_share (id INT AUTO_INCREMENT PRIMARY KEY, share_type SMALLINT DEFAULT 0 NOT NULL, share_with VARCHAR(255) DEFAULT NULL, item_source VARCHAR(255) DEFAULT NULL, expiration DATETIME DEFAULT NULL COMMENT '(DC2Type:datetime)', accepted SMALLINT DEFAULT 0 NOT NULL) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE TABLE oc_federated_reshares (share_id INT NOT NULL, remote_id VARCHAR(255) DEFAULT '', UNIQUE INDEX share_id_index (share_id)) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE TABLE oc_jobs (id INT UNSIGNED AUTO_INCREMENT NOT NULL, class VARCHAR(255) DEFAULT '' NOT NULL, argument VARCHAR(4000) DEFAULT '' NOT NULL, last_run INT DEFAULT 0, PRIMARY KEY(id)) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
INSERT INTO oc_filecache (storage, path, path_hash, name, size, mtime) VALUES (1, '', 'd41d8cd98f00b204e9800998ecf8427e', '', -1, 1500000000), (1, 'files/Fünf 🐬.txt', 'aa', 'Fünf 🐬.txt', 5000000000, 1500000001);
INSERT INTO oc_appconfig VALUES ('core', 'installedat', '1500000000.5'), ('files', 'enabled', 'yes'), ('Files', 'enabled', NULL);
INSERT INTO oc_share (share_with, item_source, expiration) VALUES ('a', '2', NULL), ('b', '2', '2018-01-01 00:00:00');
INSERT INTO oc_federated_reshares VALUES (1, '7'), (2, NULL);
INSERT INTO oc_jobs (class, argument) VALUES ('OC\\Job', '{"a":1}'), ('OC\\Other', 'null');
-- snapshot
ALTER TABLE oc_filecache CHANGE fileid fileid BIGINT AUTO_INCREMENT NOT NULL, CHANGE storage storage BIGINT DEFAULT 0 NOT NULL, CHANGE parent parent BIGINT DEFAULT 0 NOT NULL, CHANGE mtime mtime BIGINT DEFAULT 0 NOT NULL;
INSERT INTO oc_filecache (fileid, storage, path, path_hash, name, mtime) VALUES (4294967297, 1, 'x', 'bb', 'x', 4294967297);
ALTER TABLE oc_filecache ADD checksum VARCHAR(255) DEFAULT NULL, ADD permissions INT DEFAULT 0;
UPDATE oc_filecache SET permissions = 31, checksum = 'SHA1:da39' WHERE size <> 0;
ALTER TABLE oc_federated_reshares ADD PRIMARY KEY (share_id);
ALTER TABLE oc_federated_reshares DROP INDEX share_id_index;
UPDATE oc_federated_reshares SET remote_id = '8' WHERE share_id = 2;
ALTER TABLE oc_share CHANGE id id BIGINT AUTO_INCREMENT NOT NULL, ADD note LONGTEXT DEFAULT NULL, ADD hide_download SMALLINT DEFAULT 0 NOT NULL, ADD label VARCHAR(255) DEFAULT NULL;
INSERT INTO oc_share (share_with, note, label) VALUES ('c', 'für alle', '🔗');
ALTER TABLE oc_appconfig ADD type INT UNSIGNED DEFAULT 2 NOT NULL, ADD lazy SMALLINT UNSIGNED DEFAULT 0 NOT NULL;
UPDATE oc_appconfig SET type = 8, lazy = 1 WHERE appid = 'core';
-- sync
ALTER TABLE oc_jobs CHANGE id id BIGINT UNSIGNED AUTO_INCREMENT NOT NULL, ADD execution_duration INT DEFAULT 0 NOT NULL, ADD argument_hash VARCHAR(64) DEFAULT NULL, ADD time_sensitive SMALLINT DEFAULT 1 NOT NULL;
UPDATE oc_jobs SET argument_hash = LEFT(SHA2(argument, 256), 32);
ALTER TABLE oc_jobs CHANGE argument_hash argument_digest CHAR(64) DEFAULT NULL;
INSERT INTO oc_jobs (id, class, argument_digest) VALUES (18446744073709551614, 'OC\\Last', '');
CREATE TABLE oc_filecache_extended (fileid BIGINT UNSIGNED NOT NULL, metadata_etag VARCHAR(40) DEFAULT NULL, creation_time BIGINT DEFAULT 0 NOT NULL, PRIMARY KEY(fileid)) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
INSERT INTO oc_filecache_extended SELECT fileid, etag, mtime FROM oc_filecache;
ALTER TABLE oc_filecache ROW_FORMAT = DYNAMIC;
DELETE FROM oc_filecache WHERE name = '';
ALTER TABLE oc_share DROP accepted, CHANGE expiration expiration DATE DEFAULT NULL;
DROP TABLE oc_federated_reshares;
-- gone oc_federated_reshares
-- resnapshot oc_share oc_jobs
