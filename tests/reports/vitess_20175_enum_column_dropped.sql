-- report https://github.com/vitessio/vitess/issues/20175
-- report https://github.com/vitessio/vitess/issues/8242
CREATE TABLE orders (id INT PRIMARY KEY, kind ENUM('in', 'out'), state ENUM('new', 'paid', 'sent') NOT NULL, tags SET('a', 'b', 'c'));
INSERT INTO orders VALUES (1, 'in', 'paid', 'a,c'), (2, NULL, 'new', NULL);
-- snapshot
INSERT INTO orders VALUES (3, 'out', 'sent', 'b');
ALTER TABLE orders DROP COLUMN kind;
INSERT INTO orders VALUES (4, 'sent', 'c');
ALTER TABLE orders MODIFY state VARCHAR(20) NOT NULL;
INSERT INTO orders VALUES (5, 'returned', 'a');
ALTER TABLE orders MODIFY state ENUM('sent', 'returned', 'paid', 'new') NOT NULL;
UPDATE orders SET state = 'new' WHERE id = 4;
-- resnapshot orders
