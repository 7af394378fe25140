"""lock.json, whole: resolving, predicting, writing, reading and comparing it."""
