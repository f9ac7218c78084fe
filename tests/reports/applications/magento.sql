-- A shop of entities, attributes and values; its indexes are rebuilt beside and swapped in, its changelogs filled by triggers.
CREATE TABLE catalog_product_entity (entity_id int(10) unsigned NOT NULL AUTO_INCREMENT COMMENT 'Entity ID', sku varchar(64) DEFAULT NULL COMMENT 'SKU', type_id varchar(32) NOT NULL DEFAULT 'simple', has_options smallint(6) NOT NULL DEFAULT '0', created_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP COMMENT 'Creation Time', updated_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP COMMENT 'Update Time', PRIMARY KEY (entity_id), KEY SKU (sku)) DEFAULT CHARSET=utf8mb3 COMMENT='Catalog Product Table';
CREATE TABLE catalog_product_entity_decimal (value_id int(11) NOT NULL AUTO_INCREMENT, attribute_id smallint(5) unsigned NOT NULL DEFAULT '0', store_id smallint(5) unsigned NOT NULL DEFAULT '0', entity_id int(10) unsigned NOT NULL DEFAULT '0', value decimal(12,4) DEFAULT NULL, PRIMARY KEY (value_id), UNIQUE KEY UNQ_A (entity_id, attribute_id, store_id), CONSTRAINT FK_E FOREIGN KEY (entity_id) REFERENCES catalog_product_entity (entity_id)) DEFAULT CHARSET=utf8mb3;
CREATE TABLE catalog_product_index_price (entity_id int(10) unsigned NOT NULL, customer_group_id int(11) NOT NULL, website_id smallint(5) unsigned NOT NULL, final_price decimal(12,4) DEFAULT NULL, PRIMARY KEY (entity_id, customer_group_id, website_id));
CREATE TABLE catalog_product_index_price_replica LIKE catalog_product_index_price;
CREATE TABLE sales_order (entity_id int(10) unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, state varchar(32) DEFAULT NULL, protect_code varchar(255) DEFAULT NULL, grand_total decimal(12,4) DEFAULT NULL, weight decimal(12,4) DEFAULT NULL, is_virtual smallint(5) unsigned DEFAULT NULL, created_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP, gift_message mediumtext) DEFAULT CHARSET=utf8mb3;
CREATE TABLE core_config_data (config_id int(10) unsigned NOT NULL AUTO_INCREMENT, scope varchar(8) NOT NULL DEFAULT 'default', scope_id int(11) NOT NULL DEFAULT '0', path varchar(255) NOT NULL DEFAULT 'general', value text, PRIMARY KEY (config_id), UNIQUE KEY U (scope, scope_id, path)) DEFAULT CHARSET=utf8mb3;
INSERT INTO catalog_product_entity (sku) VALUES ('24-MB01'), ('24-MB02'), (NULL);
INSERT INTO catalog_product_entity_decimal (attribute_id, entity_id, value) VALUES (77, 1, 34.0000), (77, 2, 59.9999), (80, 2, NULL);
INSERT INTO catalog_product_index_price VALUES (1, 0, 1, 34), (2, 0, 1, 59.9999);
INSERT INTO sales_order (state, grand_total, weight, is_virtual) VALUES ('new', 36.39, 1.5, 0), ('complete', 39.64, NULL, 1);
INSERT INTO core_config_data (path, value) VALUES ('web/unsecure/base_url', 'http://x/'), ('general/locale', 'de_DE');
-- snapshot
CREATE TABLE catalog_product_price_cl (version_id int(10) unsigned NOT NULL AUTO_INCREMENT COMMENT 'Version ID', entity_id int(10) unsigned NOT NULL DEFAULT '0', PRIMARY KEY (version_id));
CREATE TRIGGER trg_decimal_after_update AFTER UPDATE ON catalog_product_entity_decimal FOR EACH ROW BEGIN IF (NOT(NEW.value <=> OLD.value)) THEN INSERT IGNORE INTO catalog_product_price_cl (entity_id) VALUES (NEW.entity_id); END IF; END;
UPDATE catalog_product_entity_decimal SET value = value + 1;
INSERT INTO catalog_product_index_price_replica SELECT entity_id, g, 1, value FROM catalog_product_entity_decimal, (SELECT 0 AS g UNION SELECT 1) AS groups_of WHERE attribute_id = 77;
RENAME TABLE catalog_product_index_price TO catalog_product_index_price_outdated, catalog_product_index_price_replica TO catalog_product_index_price, catalog_product_index_price_outdated TO catalog_product_index_price_replica;
TRUNCATE TABLE catalog_product_index_price_replica;
ALTER TABLE catalog_product_entity_decimal MODIFY COLUMN value decimal(20,6) NULL COMMENT 'Value';
ALTER TABLE sales_order MODIFY COLUMN grand_total decimal(20,4) NULL COMMENT 'Grand Total', MODIFY COLUMN gift_message text NULL, ADD COLUMN gift_cert decimal(20,4) NOT NULL DEFAULT 0 COMMENT 'Certificate' AFTER grand_total;
INSERT INTO sales_order (state, grand_total, gift_cert, gift_message) VALUES ('new', 1234567890123456.7891, 5, 'für Dich');
-- sync
UPDATE catalog_product_entity SET sku = CONCAT('new-', entity_id) WHERE sku IS NULL;
ALTER TABLE catalog_product_entity DROP KEY SKU, MODIFY COLUMN sku varchar(64) NOT NULL DEFAULT '' COMMENT 'SKU', ADD COLUMN attribute_set_id smallint(5) unsigned NOT NULL DEFAULT 4 COMMENT 'Set' AFTER entity_id;
ALTER TABLE core_config_data ADD COLUMN updated_at timestamp NOT NULL DEFAULT '2020-06-01 00:00:00' COMMENT 'Updated At';
INSERT INTO core_config_data (scope, scope_id, path, value, updated_at) VALUES ('default', 0, 'general/locale', 'fr_FR', '2021-01-01 00:00:00') ON DUPLICATE KEY UPDATE value = VALUES(value);
INSERT INTO catalog_product_index_price_replica SELECT entity_id, customer_group_id, website_id, final_price * 2 FROM catalog_product_index_price;
RENAME TABLE catalog_product_index_price TO swap_price, catalog_product_index_price_replica TO catalog_product_index_price, swap_price TO catalog_product_index_price_replica;
ALTER TABLE sales_order CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci;
UPDATE sales_order SET gift_message = '🎁' WHERE entity_id = 1;
DELETE p FROM catalog_product_price_cl p WHERE version_id < 3;
-- gone catalog_product_index_price_outdated swap_price
-- resnapshot sales_order
