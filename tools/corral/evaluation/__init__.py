"""Evaluations: how well models do a job, on cases whose answers are known.

``cases`` reads a set of them, ``asking`` asks a model, ``judging`` judges its answers, ``ranking`` compares models, and
``report`` writes a document.
"""
