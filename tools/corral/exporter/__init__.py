"""Reads who holds the memory of the cards: NVIDIA's driver → process → container → pod.

One flat package, standard library only, relative imports only, like the agent: Terraform can mount these files from a
ConfigMap.  What it cannot find out is None with a code for the reason, and never 0.
"""
