"""Golden answers: whether a model still answers as it did when its answers were recorded.

``questions`` has what is asked, ``asking`` asks it, ``record`` is the file of the answers, ``comparison`` judges.
"""
