-- An hour in the shop: inserts, updates, deletes, changed keys, a rollback, a new column.
USE shop;

-- New customers order: one transaction over five tables.
BEGIN;
INSERT INTO customers (uuid, email, name, country, tier, interests, newsletter, preferences)
SELECT UNHEX(LEFT(SHA2(CONCAT('new', id), 256), 32)), CONCAT('new', id, '@example.org'), CONCAT('Neu ', name),
  country, 'basic', '', TRUE, JSON_OBJECT('invited_by', id)
FROM customers WHERE id <= 400;
INSERT INTO addresses (customer_id, kind, street, city, postcode)
SELECT id, 'delivery', 'Neue Straße 1', 'Köln', '50667' FROM customers WHERE email LIKE 'new%';
INSERT INTO orders (customer_id, status, total, note, ordered_at)
SELECT id, 'paid', 42.50, 'first order', '2026-01-01 00:00:00.250' FROM customers WHERE email LIKE 'new%';
INSERT INTO order_items (order_id, line, product_id, quantity, unit_price)
SELECT id, 1, 1 + id % 2000, 1, 42.50 FROM orders WHERE note = 'first order';
INSERT INTO payments (order_id, amount, reference)
SELECT id, total, UNHEX(LEFT(SHA2(id, 256), 32)) FROM orders WHERE note = 'first order';
COMMIT;

-- Orders move on, prices rise, stock is counted.
UPDATE orders SET status = 'sent', note = CONCAT(COALESCE(note, ''), ' → sent') WHERE status = 'paid' AND id % 5 = 0;
UPDATE products SET price = ROUND(price * 1.07, 2), handling = handling ^ 5 WHERE id % 4 = 0;
UPDATE stock SET quantity = quantity - 1, counted_at = '2026-01-01 00:30:00.000001' WHERE warehouse_id = 1;
UPDATE customers SET preferences = NULL, tier = 'gold' WHERE id BETWEEN 101 AND 300;

-- Keys change: goods move to a new warehouse, and back; two deliveries change places.
UPDATE stock SET warehouse_id = 9 WHERE warehouse_id = 3 AND product_id % 10 = 0;
UPDATE stock SET warehouse_id = 3 WHERE warehouse_id = 9 AND product_id % 50 = 0;
BEGIN;
UPDATE deliveries SET id = -1 WHERE id = 1;
UPDATE deliveries SET id = 1 WHERE id = 2;
UPDATE deliveries SET id = 2 WHERE id = -1;
COMMIT;

-- Things go, some within the hour in which they came.
DELETE FROM deliveries WHERE id > 11500;
DELETE FROM addresses WHERE id % 100 = 7;
INSERT INTO addresses (id, customer_id, kind, street, city, postcode)
VALUES (900001, 1, 'billing', 'short', 'lived', '0');
DELETE FROM addresses WHERE id = 900001;

-- Never happened.
BEGIN;
DELETE FROM payments;
UPDATE products SET price = 0;
ROLLBACK;

-- A column comes, with a value for the rows that are there, and rows after it.
ALTER TABLE customers ADD COLUMN loyalty_points INT UNSIGNED NOT NULL DEFAULT 100;
INSERT INTO customers (uuid, email, name, country, loyalty_points)
SELECT UNHEX(LEFT(SHA2(CONCAT('late', id), 256), 32)), CONCAT('late', id, '@example.org'), name, country, id
FROM customers WHERE id <= 200;
UPDATE customers SET loyalty_points = loyalty_points + 25 WHERE tier = 'gold' AND id % 10 = 0;

INSERT INTO audit_log (staff, what) VALUES ('day shift', 'raised all prices');
