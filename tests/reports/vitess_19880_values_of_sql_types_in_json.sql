-- report https://github.com/vitessio/vitess/issues/19880
-- report https://github.com/vitessio/vitess/issues/19103
-- report https://github.com/go-mysql-org/go-mysql/pull/1174
-- servers mysql
CREATE TABLE documents (id INT PRIMARY KEY, j JSON);
INSERT INTO documents VALUES (1, JSON_OBJECT('d', CAST('2024-01-15' AS DATE), 't', CAST('00:00:00' AS TIME), 'n', CAST(1.99 AS DECIMAL(3,2))));
-- snapshot
INSERT INTO documents VALUES (2, CAST(CAST(1.99 AS DECIMAL(3,2)) AS JSON)), (3, JSON_ARRAY(CAST('-01:02:03.5' AS TIME(1)), CAST('2024-01-15 10:00:00.123456' AS DATETIME(6)), CAST(105 AS DECIMAL(30,10)), 1.0, 1e20, 0, -0.0, b'101', x'00FF', CAST('1901' AS YEAR)));
INSERT INTO documents VALUES (4, '[0, 1.0, 18446744073709551615, -9223372036854775808, 1e-7]'), (5, '"a \\" \\u0000 \\ud83d\\udc2c"'), (6, 'null'), (7, NULL);
UPDATE documents SET j = JSON_SET(j, '$.n', CAST(2.5 AS DECIMAL(5,1)), '$.none', CAST('00:00:00' AS TIME(6))) WHERE id = 1;
