"""Proof that an endpoint answers, and answers right.

``endpoint`` speaks HTTP, ``questions`` says what is asked, ``checks`` judges what came back (pure functions),
``runner`` decides whom to ask and in which order, ``report`` is the result and its JSON and JUnit forms.
"""
