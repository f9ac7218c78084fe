CREATE TABLE first (id INT PRIMARY KEY, v VARCHAR(9));
INSERT INTO first VALUES (1, 'ä漢');
ALTER DATABASE case_databases_character_set_changes CHARACTER SET latin1;
CREATE TABLE second (id INT PRIMARY KEY, v VARCHAR(9));
INSERT INTO second VALUES (1, 'ä');
CREATE DATABASE IF NOT EXISTS case_databases_character_set_changes CHARACTER SET utf8mb4;
CREATE TABLE third (id INT PRIMARY KEY, v VARCHAR(9));
ALTER TABLE first ADD w TEXT;
INSERT INTO third VALUES (1, 'ä');
-- sync
CREATE TABLE fourth (id INT PRIMARY KEY, v VARCHAR(9));
INSERT INTO fourth VALUES (1, 'ä');
ALTER DATABASE COLLATE utf8mb3_bin;
CREATE TABLE fifth (id INT PRIMARY KEY, v VARCHAR(9));
INSERT INTO fifth VALUES (1, '漢');
ALTER DATABASE case_databases_character_set_changes CHARACTER SET latin1;
