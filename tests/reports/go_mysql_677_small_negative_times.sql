-- report https://github.com/go-mysql-org/go-mysql/issues/677
-- report https://github.com/osheroff/mysql-binlog-connector-java/issues/154
-- report https://github.com/shyiko/mysql-binlog-connector-java/issues/361
CREATE TABLE times (id INT PRIMARY KEY, t TIME DEFAULT '-838:59:59', t1 TIME(1), t2 TIME(2), t3 TIME(3), t6 TIME(6));
INSERT INTO times VALUES (1, '-00:00:01', '-00:00:00.1', '-00:00:00.01', '-16:08:04.250', '-838:59:59');
-- snapshot
INSERT INTO times VALUES (2, '-00:00:01', '-00:00:00.1', '-00:00:00.01', '-16:08:04.250', '-838:59:59'), (3, '838:59:59', '-00:00:59.9', '-00:59:59.99', '-00:00:00.001', '-00:00:00.000001'), (4, DEFAULT, NULL, NULL, NULL, '-16:08:04.010123');
UPDATE times SET t = '-01:00:00', t6 = '838:59:58.999999' WHERE id = 1;
