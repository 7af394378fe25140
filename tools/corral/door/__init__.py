"""The guard: decides for each request whether llama-swap gets it, and relays what it may have.

One flat package, standard library only, relative imports only: Terraform mounts these files from a ConfigMap and runs
``python3 -m door config.json`` on a stock Python image.  Caddy is in front of it (TLS, limits of time and size, Host,
Origin), llama-swap behind it (loopback, one internal key).  ADR 0013 has the reasons.

The configuration is one JSON file.  Every key is required, except that the internal key has one of two sources, and
no other key is accepted::

    {
      "version": 1,
      "listen": {"host": "127.0.0.1", "port": 8081},      or {"unix": "/run/guard.sock"}; port 0: any
      "upstream": {"host": "127.0.0.1", "port": 5800},    llama-swap: loopback only
      "internal_key_file": "/run/keys/internal",          or "internal_key_env": "NAME": the key of llama-swap's apiKeys
      "keys": "/run/keys/keys.json",                      null: no keys, every request is the only client's, an operator
      "clients": {"<name>": {"models": ["<id>"], "requests": 4, "role": "client"}},
      "models": {"<id or alias>": "<id>"},
      "adapters": {"<id>:<name>": {"model": "<id>", "versions": ["v2", "v1"]}},   the first serves when none was chosen
      "chosen_versions": "/etc/corral/versions.json",     null: none was chosen
      "groups": {"<id>": "<group>"},                      one that is not named is never unloaded for another
      "tasks": {"<id>": "embedding"},                     or rerank; one that is not named is a chat
      "peers": {"<card>": {"host": "…", "port": 8080, "models": ["<id>"]}},   the doors of other cards
      "image_hosts": ["images.example:8443"],             hosts (https, or http) that an image's URL may name
      "body_mib": 64,                                     of one request; all bodies together: five times that
      "retry_after_seconds": 30,                          sent with a refusal that passes with time
      "drain_seconds": 60                                 from SIGTERM until running answers are cut off
    }

``models`` of a client are ids (null: all), ``requests`` is how many it may have under way at once (null: any number),
``role`` is ``client``, ``monitor``, ``steward`` or ``operator``; only an operator may use the paths that load, unload
and show logs.  A ``monitor``, whose ``models`` are ``[]``, reads what runs and what was answered; nothing that it does
loads a model.  A ``steward`` is a monitor that may also unload a model, one that serves no request.

``peers`` are the doors that have the models which this llama-swap does not have; ``peers`` (the module) has the rules.

``adapters`` are further names of requests, with the rights of their model; ``adapters`` (the module) has the file with
the versions that were chosen.

keys.json has the sha256 of each key, in hexadecimal, never a key; it is read again when it changes::

    {"version": 1, "clients": {"<name>": ["<sha256>", "<sha256 of the key that replaces it>"]}}
"""
