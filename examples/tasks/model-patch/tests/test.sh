#!/bin/sh
# A patch that does not apply is graded like none: the tests run on the repository as it was.
git apply /logs/artifacts/model.patch
echo $? >/tmp/applied
exec python3 /tests/grade.py
