"""The seating chart: the sum of each card, what would make a short card fit, the largest contexts, and pictures of it.

Terraform decides (``terraform/modules/seating`` sums the same and refuses); this package advises and draws.
"""
