-- Some 200,000 rows, the same each time: everything follows from a row's number n and CRC32 of it.
-- Numbers come from two crossed series of a thousand, which both servers allow without a setting.
USE shop;

INSERT INTO customers (id, uuid, email, name, country, born, tier, interests, newsletter, preferences, registered_at)
WITH RECURSIVE k (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM k WHERE i < 999),
  numbers (n) AS (SELECT a.i * 1000 + b.i + 1 FROM k AS a JOIN k AS b WHERE a.i < 20)
SELECT n,
  UNHEX(LEFT(SHA2(CONCAT('customer', n), 256), 32)),
  CONCAT('customer', n, '@example.org'),
  CONCAT(ELT(1 + CRC32(CONCAT('f', n)) % 12, 'Zoë', 'Łukasz', 'José', 'Søren', 'Ειρήνη', 'Юлия', '美咲', 'محمد',
    'Ana', 'Noah 🚲', 'Ji-woo', 'Amélie'), ' ', ELT(1 + CRC32(CONCAT('l', n)) % 8, 'Müller', 'O''Brien', 'Nowak', 'García',
    'Åberg', 'Papadopoulos', '佐藤', 'Da Silva')),
  ELT(1 + CRC32(CONCAT('c', n)) % 8, 'DE', 'IE', 'PL', 'ES', 'SE', 'GR', 'JP', 'BR'),
  IF(n % 11 = 0, NULL, DATE '1940-01-01' + INTERVAL CRC32(CONCAT('b', n)) % 24000 DAY),
  ELT(1 + CRC32(CONCAT('t', n)) % 3, 'basic', 'silver', 'gold'),
  CRC32(CONCAT('i', n)) % 16,
  n % 3 = 0,
  IF(n % 7 = 0, NULL, JSON_OBJECT('language', ELT(1 + n % 3, 'en', 'de', 'ja'), 'size', CRC32(CONCAT('s', n)) % 50,
    'colours', JSON_ARRAY('red', 'grün'))),
  TIMESTAMP '2023-01-01 00:00:00' + INTERVAL CRC32(CONCAT('r', n)) % 63072000 SECOND
FROM numbers;

INSERT INTO addresses (id, customer_id, kind, street, city, postcode, latitude, longitude)
WITH RECURSIVE k (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM k WHERE i < 999),
  numbers (n) AS (SELECT a.i * 1000 + b.i + 1 FROM k AS a JOIN k AS b WHERE a.i < 20)
SELECT n, 1 + CRC32(CONCAT('ac', n)) % 20000, ELT(1 + n % 2, 'billing', 'delivery'),
  CONCAT(ELT(1 + CRC32(CONCAT('as', n)) % 4, 'Straße des 17. Juni ', 'Rua da Glória ', 'ul. Długa ', 'Main Street '),
    1 + n % 300),
  ELT(1 + CRC32(CONCAT('at', n)) % 6, 'Köln', 'São Paulo', 'Łódź', 'Αθήνα', '東京', 'Dublin'),
  LPAD(CRC32(CONCAT('ap', n)) % 100000, 5, '0'),
  IF(n % 13 = 0, NULL, (CRC32(CONCAT('la', n)) % 1800000) / 1e4 - 90),
  IF(n % 13 = 0, NULL, (CRC32(CONCAT('lo', n)) % 3600000) / 1e4 - 180)
FROM numbers;

INSERT INTO categories (id, parent_id, name)
WITH RECURSIVE k (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 8)
SELECT i, NULL, ELT(i, 'Bikes', 'Books', 'Garden', 'Music', 'Kitchen', 'Toys', 'Möbel', 'お茶') FROM k;

INSERT INTO categories (id, parent_id, name)
WITH RECURSIVE k (i) AS (SELECT 9 UNION ALL SELECT i + 1 FROM k WHERE i < 48)
SELECT i, 1 + i % 8, CONCAT('Shelf ', i) FROM k;

INSERT INTO products
  (id, sku, name, category_id, price, weight_g, rating, handling, fragile, made_in, description, attributes)
WITH RECURSIVE k (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM k WHERE i < 999),
  numbers (n) AS (SELECT a.i * 1000 + b.i + 1 FROM k AS a JOIN k AS b WHERE a.i < 2)
SELECT n, CONCAT('SKU-', LPAD(n, 6, '0')),
  CONCAT(ELT(1 + n % 6, 'Velo', 'Café', 'Naïve', '緑茶', 'Ручка', 'Plain'), ' ', n),
  9 + n % 40, 1 + (CRC32(CONCAT('p', n)) % 50000) / 100,
  IF(n % 17 = 0, NULL, CRC32(CONCAT('w', n)) % 30000), IF(n % 5 = 0, NULL, (CRC32(CONCAT('ra', n)) % 500) / 100),
  CRC32(CONCAT('h', n)) % 64, n % 2, 1990 + n % 35,
  IF(n % 9 = 0, NULL, REPEAT(CONCAT('A fine thing, number ', n, '. '), 1 + n % 5)),
  JSON_OBJECT('colour', ELT(1 + n % 3, 'red', 'blue', NULL), 'cm', JSON_ARRAY(n % 90, n % 70, 1.5))
FROM numbers;

INSERT INTO stock (warehouse_id, product_id, quantity, counted_at)
WITH RECURSIVE k (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM k WHERE i < 999),
  numbers (n) AS (SELECT a.i * 1000 + b.i FROM k AS a JOIN k AS b WHERE a.i < 6)
SELECT 1 + n DIV 2000, 1 + n % 2000, CAST(CRC32(CONCAT('q', n)) % 500 AS SIGNED) - 5,
  TIMESTAMP '2025-06-30 18:00:00' + INTERVAL CRC32(CONCAT('k', n)) MICROSECOND
FROM numbers;

INSERT INTO orders (id, customer_id, status, total, note, ordered_at)
WITH RECURSIVE k (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM k WHERE i < 999),
  numbers (n) AS (SELECT a.i * 1000 + b.i + 1 FROM k AS a JOIN k AS b WHERE a.i < 40)
SELECT n, 1 + CRC32(CONCAT('oc', n)) % 20000,
  ELT(1 + CRC32(CONCAT('st', n)) % 5, 'new', 'paid', 'sent', 'delivered', 'returned'), 0,
  IF(n % 6 = 0, ELT(1 + n % 4, 'Bitte klingeln', 'À l''arrière, merci', '', 'gift 🎁'), NULL),
  TIMESTAMP '2024-01-01 00:00:00' + INTERVAL n * 1200 + CRC32(CONCAT('ot', n)) % 1200 SECOND
    + INTERVAL (n % 1000) * 1000 MICROSECOND
FROM numbers;

INSERT INTO order_items (order_id, line, product_id, quantity, unit_price, discount)
WITH RECURSIVE k (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM k WHERE i < 999),
  numbers (n) AS (SELECT a.i * 1000 + b.i FROM k AS a JOIN k AS b WHERE a.i < 80)
SELECT 1 + n % 40000, 1 + n DIV 40000, p.id, 1 + CRC32(CONCAT('iq', n)) % 4, p.price,
  IF(n % 8 = 0, 0.1250, 0)
FROM numbers JOIN products AS p ON p.id = 1 + CRC32(CONCAT('ip', n)) % 2000;

UPDATE orders JOIN (
  SELECT order_id, SUM(quantity * unit_price * (1 - discount)) AS total FROM order_items GROUP BY order_id
) AS items ON items.order_id = orders.id
SET orders.total = ROUND(items.total, 2);

INSERT INTO payments (order_id, amount, currency, reference, paid_at)
SELECT id, total, ELT(1 + id % 3, 'EUR', 'PLN', 'JPY'), UNHEX(LEFT(SHA2(CONCAT('payment', id), 256), 40)),
  ordered_at + INTERVAL CRC32(CONCAT('pa', id)) % 86400000000 MICROSECOND
FROM orders WHERE status <> 'new' ORDER BY id LIMIT 26000;

INSERT INTO deliveries (order_id, carrier, delivered_on, slot_from, slot_to, delay)
SELECT id, ELT(1 + id % 3, 'Öresund Express', 'Post', 'Fähre & Rad'), DATE(ordered_at) + INTERVAL 1 + id % 5 DAY,
  SEC_TO_TIME(28800 + (id % 8) * 3600), SEC_TO_TIME(32400 + (id % 8) * 3600),
  IF(id % 4 = 0, NULL, SEC_TO_TIME(CAST(CRC32(CONCAT('dd', id)) % 200000 AS SIGNED) - 20000))
FROM orders WHERE status IN ('delivered', 'returned') ORDER BY id LIMIT 12000;

INSERT INTO audit_log (staff, what)
SELECT 'night shift', CONCAT('looked at customer ', id) FROM customers WHERE id <= 5000;
