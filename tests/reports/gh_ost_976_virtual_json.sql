-- report https://github.com/github/gh-ost/issues/976
-- servers mysql
CREATE TABLE documents (id INT AUTO_INCREMENT PRIMARY KEY, doc JSON, inner_doc JSON GENERATED ALWAYS AS (JSON_EXTRACT(doc, '$.items')) VIRTUAL);
INSERT INTO documents (doc) VALUES ('{"state": "new", "items": {"0": [{"at": "2021-05-28", "n": 1}, "first"]}}');
-- snapshot
UPDATE documents SET doc = '{"state": "new", "items": {"0": [{"at": "2021-05-28", "n": 1}, "first"], "1": [{"at": "2021-05-29"}, "second"]}}';
UPDATE documents SET doc = '{"state": "new", "items": {"0": [{"at": "2021-05-28", "n": 1}, "a longer first"], "1": [{"at": "2021-05-29"}, "the second"]}}';
INSERT INTO documents (doc) VALUES (NULL), ('{}'), ('{"items": null}');
