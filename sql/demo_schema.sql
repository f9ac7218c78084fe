-- The demo's shop: nine tables to mirror and an audit log that stays where it is. MySQL 8.4+, MariaDB 10.6+.
CREATE DATABASE shop CHARACTER SET utf8mb4;
USE shop;

CREATE TABLE customers (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  uuid BINARY(16) NOT NULL,
  email VARCHAR(120) NOT NULL,
  name VARCHAR(100) NOT NULL,
  country CHAR(2) NOT NULL,
  born DATE NULL,
  tier ENUM('basic', 'silver', 'gold') NOT NULL DEFAULT 'basic',
  interests SET('bikes', 'books', 'garden', 'music') NOT NULL DEFAULT '',
  newsletter BOOLEAN NOT NULL DEFAULT FALSE,
  preferences JSON NULL,
  registered_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (id),
  UNIQUE KEY (uuid),
  UNIQUE KEY (email)
);

CREATE TABLE addresses (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT,
  customer_id BIGINT UNSIGNED NOT NULL,
  kind ENUM('billing', 'delivery') NOT NULL,
  street VARCHAR(120) NOT NULL,
  city VARCHAR(80) NOT NULL,
  postcode VARCHAR(12) NOT NULL,
  latitude DOUBLE NULL,
  longitude DOUBLE NULL,
  PRIMARY KEY (id),
  FOREIGN KEY (customer_id) REFERENCES customers (id)
);

CREATE TABLE categories (
  id SMALLINT UNSIGNED NOT NULL,
  parent_id SMALLINT UNSIGNED NULL,
  name VARCHAR(60) NOT NULL,
  PRIMARY KEY (id),
  FOREIGN KEY (parent_id) REFERENCES categories (id)
);

CREATE TABLE products (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT,
  sku VARCHAR(24) NOT NULL,
  name VARCHAR(120) NOT NULL,
  category_id SMALLINT UNSIGNED NOT NULL,
  price DECIMAL(10,2) NOT NULL,
  weight_g MEDIUMINT UNSIGNED NULL,
  rating FLOAT NULL,
  handling BIT(6) NOT NULL DEFAULT b'0',
  fragile BIT(1) NOT NULL DEFAULT b'0',
  made_in YEAR NULL,
  description TEXT NULL,
  attributes JSON NULL,
  PRIMARY KEY (id),
  UNIQUE KEY (sku),
  FOREIGN KEY (category_id) REFERENCES categories (id)
);

CREATE TABLE stock (
  warehouse_id TINYINT UNSIGNED NOT NULL,
  product_id INT UNSIGNED NOT NULL,
  quantity INT NOT NULL,
  counted_at DATETIME(6) NOT NULL,
  PRIMARY KEY (warehouse_id, product_id),
  FOREIGN KEY (product_id) REFERENCES products (id)
);

CREATE TABLE orders (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  customer_id BIGINT UNSIGNED NOT NULL,
  status ENUM('new', 'paid', 'sent', 'delivered', 'returned') NOT NULL DEFAULT 'new',
  total DECIMAL(12,2) NOT NULL,
  note VARCHAR(200) NULL,
  ordered_at DATETIME(3) NOT NULL,
  PRIMARY KEY (id),
  KEY (ordered_at),
  FOREIGN KEY (customer_id) REFERENCES customers (id)
);

CREATE TABLE order_items (
  order_id BIGINT UNSIGNED NOT NULL,
  line TINYINT UNSIGNED NOT NULL,
  product_id INT UNSIGNED NOT NULL,
  quantity SMALLINT UNSIGNED NOT NULL,
  unit_price DECIMAL(10,2) NOT NULL,
  discount DECIMAL(5,4) NOT NULL DEFAULT 0,
  PRIMARY KEY (order_id, line),
  FOREIGN KEY (order_id) REFERENCES orders (id),
  FOREIGN KEY (product_id) REFERENCES products (id)
);

CREATE TABLE payments (
  id BIGINT NOT NULL AUTO_INCREMENT,
  order_id BIGINT UNSIGNED NOT NULL,
  amount DECIMAL(12,2) NOT NULL,
  currency CHAR(3) NOT NULL DEFAULT 'EUR',
  reference VARBINARY(20) NOT NULL,
  paid_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  PRIMARY KEY (id),
  FOREIGN KEY (order_id) REFERENCES orders (id)
);

CREATE TABLE deliveries (
  id INT NOT NULL AUTO_INCREMENT,
  order_id BIGINT UNSIGNED NOT NULL,
  carrier VARCHAR(40) CHARACTER SET latin1 NOT NULL,
  delivered_on DATE NULL,
  slot_from TIME NOT NULL,
  slot_to TIME NOT NULL,
  delay TIME NULL,
  PRIMARY KEY (id),
  FOREIGN KEY (order_id) REFERENCES orders (id)
);

CREATE TABLE audit_log (
  id BIGINT NOT NULL AUTO_INCREMENT,
  at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  staff VARCHAR(60) NOT NULL,
  what TEXT NOT NULL,
  PRIMARY KEY (id)
);
