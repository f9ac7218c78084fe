-- report https://github.com/Altinity/clickhouse-sink-connector/issues/682
CREATE TABLE table1 (id INT PRIMARY KEY, v INT);
INSERT INTO table1 VALUES (1, 1);
-- snapshot
alter table table1 add entity varchar(255) default 'e' , ALGORITHM=INPLACE, LOCK=NONE;
INSERT INTO table1 VALUES (2, 2, 'f');
ALTER TABLE table1 ALGORITHM = COPY, LOCK = SHARED, MODIFY v BIGINT, ADD w INT NOT NULL DEFAULT 3;
INSERT INTO table1 VALUES (3, 9223372036854775807, 'g', 4);
ALTER TABLE table1 DROP entity, ALGORITHM DEFAULT, LOCK DEFAULT;
CREATE INDEX by_v ON table1 (v) ALGORITHM = INPLACE;
INSERT INTO table1 VALUES (4, 4, 5);
