-- Questions to the mirror. binlake sql answers them; elsewhere after CREATE VIEW orders AS SELECT * FROM
-- delta.`…/shop/shop/orders` and so on, see binlake help analysts.

-- Which categories earned most?
SELECT parent.name AS category, COUNT(DISTINCT orders.id) AS orders,
  SUM(items.quantity * items.unit_price * (1 - items.discount)) AS revenue
FROM order_items AS items
JOIN orders ON orders.id = items.order_id
JOIN products ON products.id = items.product_id
JOIN categories ON categories.id = products.category_id
JOIN categories AS parent ON parent.id = categories.parent_id
WHERE orders.status <> 'returned'
GROUP BY parent.name
ORDER BY revenue DESC
LIMIT 5;

-- How many customers of each tier have the newsletter?
SELECT tier, COUNT(*) AS customers, SUM(CASE WHEN newsletter = 1 THEN 1 ELSE 0 END) AS with_newsletter
FROM customers
GROUP BY tier
ORDER BY tier;

-- Orders whose payments differ from their total: joins are as consistent as on the server, because all
-- tables stand at one position.
SELECT orders.id, orders.total, SUM(payments.amount) AS paid
FROM orders
JOIN payments ON payments.order_id = orders.id
GROUP BY orders.id, orders.total
HAVING SUM(payments.amount) <> orders.total
ORDER BY orders.id;
