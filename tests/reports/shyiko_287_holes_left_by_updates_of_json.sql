-- report https://github.com/shyiko/mysql-binlog-connector-java/issues/287
-- report https://github.com/krowinski/php-mysql-replication/issues/59
-- servers mysql
CREATE TABLE series (id INT PRIMARY KEY, doc JSON);
INSERT INTO series VALUES (1, '{"id": 1, "name": "Monica", "types": [1, "123"]}'), (2, JSON_OBJECT('long', REPEAT('x', 70000), 'a', 1));
-- snapshot
UPDATE series SET doc = JSON_SET(doc, '$.name', 'Mon');
UPDATE series SET doc = JSON_REMOVE(doc, '$.types[0]') WHERE id = 1;
UPDATE series SET doc = JSON_REPLACE(doc, '$.long', 'short', '$.a', JSON_ARRAY(1, 2)) WHERE id = 2;
