-- report https://github.com/zendesk/maxwell/issues/1393
-- report https://github.com/Altinity/clickhouse-sink-connector/issues/917
-- report https://github.com/shyiko/mysql-binlog-connector-java/issues/189
CREATE TABLE student (id INT PRIMARY KEY, name VARCHAR(20));
CREATE TABLE journal (n INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(20), student INT, was VARCHAR(20));
-- snapshot
DROP PROCEDURE IF EXISTS enrol;
CREATE DEFINER = CURRENT_USER PROCEDURE enrol(IN i INT, IN n VARCHAR(20)) BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN END; /* DROP TABLE student; */ INSERT INTO student VALUES (i, n); UPDATE student SET name = CONCAT(name, '!') WHERE id = i; END;
CREATE TRIGGER told AFTER INSERT ON student FOR EACH ROW BEGIN INSERT INTO journal (what, student) VALUES ('in', NEW.id); IF NEW.name = 'x' THEN DELETE FROM journal WHERE student < NEW.id; END IF; END;
CREATE TRIGGER changed BEFORE UPDATE ON student FOR EACH ROW INSERT INTO journal (what, student, was) VALUES ('change', OLD.id, OLD.name);
CREATE FUNCTION twice(i INT) RETURNS INT DETERMINISTIC RETURN i * 2;
CREATE EVENT never ON SCHEDULE EVERY 1 YEAR STARTS '2036-01-01 00:00:00' DISABLE DO ALTER TABLE student ADD gone INT;
CALL enrol(1, 'a');
CALL enrol(2, 'x');
CALL enrol(2, 'again');
INSERT INTO student VALUES (twice(5), 'f');
CREATE OR REPLACE VIEW shown AS SELECT name FROM student;
DROP TRIGGER told;
DROP EVENT never;
INSERT INTO student VALUES (11, 'quiet');
