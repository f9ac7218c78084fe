-- report https://github.com/github/gh-ost/issues/1480
CREATE TABLE switches (id BIGINT NOT NULL, state BIT(1) NOT NULL, mask BIT(20) NOT NULL, note VARCHAR(20), PRIMARY KEY (id, state, mask));
INSERT INTO switches VALUES (1, b'1', 5, 'on'), (2, b'0', 1048575, 'off'), (2, b'1', 0, 'both');
-- snapshot
UPDATE switches SET state = b'0' WHERE id = 1;
DELETE FROM switches WHERE id = 2 AND state = b'1';
INSERT INTO switches VALUES (3, b'1', 524288, 'new');
ALTER TABLE switches ENGINE = InnoDB;
UPDATE switches SET mask = mask + 1 WHERE id = 3;
