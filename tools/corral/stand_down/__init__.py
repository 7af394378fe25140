"""Stands a tenant down for a time: its workloads have no replicas, and a Job in the cluster restores them.

The Lease of a tenant holds what is restored and until when; whatever else a stand-down makes is owned by it, and ends
with it.  ``restorer`` is also the Job's program.
"""
