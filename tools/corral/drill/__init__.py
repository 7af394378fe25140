"""Plays an incident with real programs and a stand-in for the card, and reports when each layer detected the fault.

Real: llama-swap, the engine, the preflight, the front door, the exporter's readings, `corral why`, and where they are
installed Prometheus and Alertmanager with the alerts of terraform/modules/alerts.  Not real: nvidia-smi, whose figures
the drill makes, and the tenant, which is a process that sleeps.
"""
