-- report https://github.com/github/gh-ost/issues/441
-- report https://github.com/debezium/debezium/pull/3856
CREATE TABLE promo (Id INT PRIMARY KEY, OrderID INT DEFAULT 0, UserName VARCHAR(20));
INSERT INTO promo VALUES (1, 10, 'a'), (2, 20, 'b');
-- snapshot
ALTER TABLE promo MODIFY orderid BIGINT UNSIGNED DEFAULT 0 COMMENT '订单';
INSERT INTO promo VALUES (3, 18446744073709551615, 'c');
ALTER TABLE promo CHANGE username LoginName VARCHAR(30), RENAME COLUMN ORDERID TO orderId;
UPDATE promo SET loginname = 'd', orderid = 7 WHERE ID = 2;
ALTER TABLE promo DROP COLUMN LOGINNAME;
INSERT INTO promo (ID, ORDERID) VALUES (4, 4);
