-- report https://github.com/drasi-project/drasi-core/pull/695
CREATE TABLE years (id INT PRIMARY KEY, y YEAR, n YEAR NOT NULL);
INSERT INTO years VALUES (1, 0, '0000'), (2, 1901, 2155);
-- snapshot
INSERT INTO years VALUES (3, 0, '0000'), (4, NULL, 2069), (5, '70', '69');
UPDATE years SET y = '0000' WHERE id = 2;
ALTER TABLE years ADD added YEAR NOT NULL;
