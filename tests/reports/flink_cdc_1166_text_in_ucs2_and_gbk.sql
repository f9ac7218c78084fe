-- report https://github.com/apache/flink-cdc/issues/1166
-- report https://github.com/apache/flink-cdc/issues/1325
-- report https://github.com/datazip-inc/olake/pull/940
CREATE TABLE texts (id VARCHAR(20) PRIMARY KEY, u VARCHAR(50) CHARACTER SET ucs2 DEFAULT '', g VARCHAR(50) CHARACTER SET gbk NOT NULL, l VARCHAR(50) CHARACTER SET latin1, e ENUM('YES', 'NO', '等') CHARACTER SET utf16 COLLATE utf16_bin, s SET('运动', 'music') CHARACTER SET utf16) DEFAULT CHARSET = utf8mb3;
INSERT INTO texts VALUES ('1', '测试数据', '中国', 'é', '等', '运动,music');
-- snapshot
INSERT INTO texts VALUES ('2', 'Craig', '美国', '€', 'NO', 'music'), ('3', DEFAULT, '', NULL, NULL, NULL);
UPDATE texts SET u = '日本', g = '北京', e = 'YES', s = '运动' WHERE id = '1';
ALTER TABLE texts ADD g2 VARCHAR(10) CHARACTER SET gbk DEFAULT '上海' AFTER id, ADD u2 CHAR(3) CHARACTER SET utf32 DEFAULT 'é';
INSERT INTO texts (id, g) VALUES ('4', '广州');
