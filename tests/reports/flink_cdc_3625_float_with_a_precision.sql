-- report https://github.com/apache/flink-cdc/pull/3625
-- report https://github.com/apache/flink-cdc/issues/3132
-- report https://github.com/alibaba/canal/issues/961
CREATE TABLE rates (id INT PRIMARY KEY, f FLOAT, fs FLOAT(10,2), wide FLOAT(36,6), fd FLOAT(30), d DOUBLE, ds DOUBLE(20,5), r REAL);
INSERT INTO rates VALUES (1, 24.1, 24.1, 345.678894, 24.1, 24.1, 24.1, 24.1), (2, -0.0, 0, 0, 1e38, 1.7976931348623157e308, -1.5, 5e-324);
-- snapshot
INSERT INTO rates VALUES (3, 16777217, 0.05, 123456789.123456, 0.1, 0.1, 99999.99999, 1e-300), (4, 3.4028234e38, 22083.99, NULL, NULL, NULL, NULL, NULL);
UPDATE rates SET f = f / 3, fs = fs / 3, wide = wide / 3 WHERE id = 1;
