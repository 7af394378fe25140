"""Reads who holds the memory of the cards: NVIDIA's driver → process → container → pod, or systemd's unit → tenant.

One flat package, relative imports only, like the agent: Terraform mounts these files from a ConfigMap, and beside them
prometheus_client as its wheel, and runs ``python3 -m exporter config.json`` on a stock Python image; the Ansible role
node_metrics runs the same under systemd.  `corral card` and `corral exporter` are the same code.  What it cannot find
out is None with a code for the reason, and never 0.

The configuration is one JSON file.  Every key is required, and no other key is accepted::

    {
      "version": 1,
      "listen": {"host": "0.0.0.0", "port": 9460},
      "operator_keys": "/opt/corral/keys/keys.json",     whose key the page, the account and the records need
      "engines": {"namespace": "llama-cpp", "selector": "app.kubernetes.io/name=llama-swap"},
      "door": {"port": 8080, "host": "llama-swap.llama-cpp.svc", "key_file": "/opt/corral/keys/key"},
      "records": "/var/lib/corral/records",              of the recorder
      "alertmanager": "http://alertmanager-operated.monitoring.svc:9093",    whose alerts are recorded; null: of none
      "driver_pid_namespace": null,                      whose pids the driver reports; null: the kernel's first
      "seal": "<of the lock>",
      "cards": {"<card>": {
        "vram_bytes": 1, "reserve_bytes": 1,
        "yield": {"floor_bytes": 1, "idle_seconds": 60},   when idle models are unloaded; null: never
        "tenants": {"<tenant>": {
          "budget_bytes": 1, "namespace": "<or null>", "selector": "<or null>", "unit": "<or null>",
          "expects": {"<VARIABLE>": ">0"}
        }},
        "models": {"<id>": {
          "group": "main", "seat_bytes": 1, "predicted_bytes": 1, "measured_bytes": null, "latency": [
            {"consumer": "<name>", "prompt_tokens": 1, "answer_tokens": 1, "p95_seconds": 1.5, "cold": "allowed"}
          ]
        }}
      }}
    }

``door`` is the front door of the pods of ``engines``: its port, the Host that it serves, and the file with the key of
the monitor, which is read at each scrape.  Without a key, or a pod, llama-swap is not read.  Where a card has
``yield``, the guard behind it must take that client for a steward.

On a machine without Kubernetes ``engines`` is ``{"units": ["llama-swap.service"]}``, the systemd units of the engines,
and ``door`` is null: llama-swap is not read, no model yields, and a tenant has the processes of its ``unit``.

``operator_keys`` is a document of `corral keys` with the hashes of the operator's keys, which is read at each request:
without it the page is closed.
"""
