"""Proof that an endpoint answers, and answers right.

``endpoint`` speaks HTTP, ``questions`` has the requests, ``checks`` judges the replies (pure functions), ``runner``
decides which model is checked when, ``report`` is the result and its JSON and JUnit forms.
"""
