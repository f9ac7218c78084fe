-- Statements in ANSI mode, languages in ASCII, serialized blobs, and one table for each field, which an update rebuilds.
SET sql_mode = 'ANSI,STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION';
CREATE TABLE "node" ("nid" INT unsigned NOT NULL auto_increment, "vid" INT unsigned NULL DEFAULT NULL, "type" VARCHAR(32) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL COMMENT 'The ID of the "target" entity.', "uuid" VARCHAR(128) CHARACTER SET ascii NOT NULL, "langcode" VARCHAR(12) CHARACTER SET ascii NOT NULL, PRIMARY KEY ("nid"), UNIQUE KEY "node__vid" ("vid"), INDEX "node_type" ("type"(4))) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE TABLE "node__body" ("bundle" VARCHAR(128) CHARACTER SET ascii NOT NULL DEFAULT '', "deleted" TINYINT NOT NULL DEFAULT 0, "entity_id" INT unsigned NOT NULL, "langcode" VARCHAR(32) CHARACTER SET ascii NOT NULL DEFAULT '', "delta" INT unsigned NOT NULL, "body_value" LONGTEXT NOT NULL, "body_format" VARCHAR(255) CHARACTER SET ascii NULL DEFAULT NULL, PRIMARY KEY ("entity_id", "deleted", "delta", "langcode")) DEFAULT CHARACTER SET utf8mb4;
CREATE TABLE "config" ("collection" VARCHAR(255) CHARACTER SET ascii NOT NULL DEFAULT '', "name" VARCHAR(255) CHARACTER SET ascii NOT NULL DEFAULT '', "data" LONGBLOB NULL DEFAULT NULL, PRIMARY KEY ("collection", "name")) DEFAULT CHARACTER SET utf8mb4;
CREATE TABLE "cache_page" ("cid" VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '', "data" LONGBLOB, "expire" INT NOT NULL DEFAULT 0, "created" DECIMAL(14, 3) NOT NULL DEFAULT 0, "tags" LONGTEXT, PRIMARY KEY ("cid"));
CREATE TABLE "sequences" ("value" INT unsigned NOT NULL auto_increment, PRIMARY KEY ("value"));
CREATE TABLE "url_alias" ("pid" INT unsigned NOT NULL auto_increment, "source" VARCHAR(255) NOT NULL DEFAULT '', "alias" VARCHAR(255) NOT NULL DEFAULT '', PRIMARY KEY ("pid")) DEFAULT CHARACTER SET utf8mb3;
INSERT INTO "node" ("vid", "type", "uuid", "langcode") VALUES (1, 'article', 'aaaa-1', 'en'), (2, 'page', 'aaaa-2', 'de'), (NULL, 'page', 'aaaa-3', 'und');
INSERT INTO "node__body" VALUES ('article', 0, 1, 'en', 0, '<p>"Hi"</p>', 'basic_html'), ('page', 0, 2, 'de', 0, 'Grüße', NULL);
INSERT INTO "config" VALUES ('', 'system.site', 'a:1:{s:4:"name";s:1:"x";}'), ('language.de', 'system.site', NULL), ('', 'core.extension', 0x00FF);
INSERT INTO "cache_page" VALUES ('http://x/', 'html', -1, 1443657600.123, 'node:1'), ('http://X/', NULL, 0, 1, NULL);
INSERT INTO "sequences" VALUES (1), (2);
INSERT INTO "url_alias" ("source", "alias") VALUES ('node/1', 'hello' || '-' || 'world'), ('node/2', 'grüße');
-- snapshot
SET sql_mode = 'ANSI,STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION';
ALTER TABLE "cache_page" ADD "checksum" VARCHAR(255) CHARACTER SET ascii NOT NULL DEFAULT '0', ADD INDEX "expire" ("expire");
TRUNCATE TABLE "cache_page";
INSERT INTO "cache_page" ("cid", "data", "created") VALUES ('http://y/', 'again', 1700000000.999);
ALTER TABLE "node__body" ADD "revision_id" INT unsigned NOT NULL DEFAULT 0 AFTER "entity_id", ADD "body_summary" LONGTEXT AFTER "body_value";
UPDATE "node__body", "node" SET "revision_id" = COALESCE("vid", 0) WHERE "nid" = "entity_id";
CREATE TABLE "tmp_1a2b_node__body" LIKE "node__body";
ALTER TABLE "tmp_1a2b_node__body" CHANGE "body_format" "body_format" VARCHAR(64) CHARACTER SET ascii NULL, CHANGE "delta" "delta" INT unsigned NOT NULL DEFAULT 0;
INSERT INTO "tmp_1a2b_node__body" SELECT * FROM "node__body";
ALTER TABLE "node__body" RENAME TO "old_1a2b_node__body";
ALTER TABLE "tmp_1a2b_node__body" RENAME TO "node__body";
DROP TABLE "old_1a2b_node__body";
UPDATE "node__body" SET "body_summary" = 'sum' WHERE "entity_id" = 1;
-- sync
SET sql_mode = 'ANSI,STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION';
CREATE TABLE "path_alias" ("id" INT unsigned NOT NULL auto_increment, "uuid" VARCHAR(128) CHARACTER SET ascii NOT NULL, "path" VARCHAR(255) DEFAULT NULL, "alias" VARCHAR(255) DEFAULT NULL, "status" TINYINT NOT NULL DEFAULT 1, PRIMARY KEY ("id")) DEFAULT CHARACTER SET utf8mb4;
INSERT INTO "path_alias" ("id", "uuid", "path", "alias") SELECT "pid", 'u' || "pid", '/' || "source", '/' || "alias" FROM "url_alias";
DROP TABLE "url_alias";
ALTER TABLE "node" CHANGE "uuid" "uuid" VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, DROP KEY "node__vid";
ALTER TABLE "sequences" CHANGE "value" "value" BIGINT unsigned NOT NULL auto_increment;
INSERT INTO "sequences" VALUES (4294967296);
DELETE FROM "sequences" WHERE "value" < 4294967296;
ALTER TABLE "config" CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
UPDATE "config" SET "data" = NULL WHERE "name" = 'core.extension';
UPDATE "node" SET "langcode" = 'fr', "vid" = 4294967295 WHERE "nid" = 3;
-- gone url_alias old_1a2b_node__body tmp_1a2b_node__body
