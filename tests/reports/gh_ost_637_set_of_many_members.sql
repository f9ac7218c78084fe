-- report https://github.com/github/gh-ost/issues/637
CREATE TABLE options (id INT PRIMARY KEY, v SET('1','2','3','4','5','6','7','8','9','10','11','12','13','14','15','16','17') NOT NULL, w SET('a','b','c','d','e','f','g','h'));
INSERT INTO options VALUES (1, '1,2,3,4,5,8,9,12,17', 'a,h'), (2, '', '');
-- snapshot
INSERT INTO options VALUES (3, '17', 'h'), (4, '8,9', NULL), (5, '1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17', 'a,b,c,d,e,f,g,h');
UPDATE options SET v = '16,1', w = 'g' WHERE id = 2;
