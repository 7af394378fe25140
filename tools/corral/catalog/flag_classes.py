"""What each flag of the pinned engine may do: the one place in which a new flag of it is classified.

Flags are named by their first long name in ``llama_server_flags.json``, which follows the engine.  A flag of it that
has no class, or a class whose flag is gone, is an error of ``make check`` (``tools/dev/engine_flags.py``); until then
the flag is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Class = Literal["memory", "sampling", "template", "file", "network", "executes", "logs", "debug", "unclassified"]

ACCEPTED: Mapping[Class, str] = {
    "memory": "weights, caches, batches, threads: what is computed where, and with how much memory",
    "sampling": "which token comes next, and when an answer ends",
    "template": "how messages become a prompt, and an answer a message",
}
"""Classes that ``args`` takes, and what they decide."""

REFUSED: Mapping[Class, str] = {
    "file": "it reads or writes a path of the machine, whose content is not locked and not in the cluster",
    "network": "it changes who reaches the engine, or what the engine reaches; only llama-swap reaches it",
    "executes": "with it the engine runs other programs, at the request of any client",
    "logs": "corral reads the reason of a failed load from the engine's log, and no log may hold prompts",
    "debug": "it exposes or changes the state of the running engine, prompts of other clients included",
    "unclassified": "this engine is newer than corral's classes, and what the flag does is not known here",
}
"""Classes that ``args`` does not take, and why."""


@dataclass(frozen=True)
class Group:
    """Flags that the same is true of; each reason is the end of a sentence.

    Attributes:
        of: their class.
        flags: the first long name of each.
        owned: why the catalog cannot set them: corral sets them itself, …
        never: … or they would undo what corral sets.
        text_flag: the flag that takes as a text what is in the file that these name.
        not_counted: why the engine's count of memory would be too small with them.
    """

    of: Class
    flags: tuple[str, ...]
    owned: str = ""
    never: str = ""
    text_flag: str = ""
    not_counted: str = ""


_NEVER_FITS = "it is always off: a neighbour's memory must not change what is loaded"
_PROJECTOR = "corral chooses the projector from `source.mmproj`"
_SPECULATION = "speculation by other means than a draft model takes memory of its own"
_ADAPTER = "a control vector takes memory of its own"
_DEVICES = "the count is for one card"

GROUPS = (
    Group(
        "memory",
        (
            *("batch-size", "cache-idle-slots", "cache-prompt", "cache-reuse", "cache-type-k", "cache-type-v"),
            *("check-tensors", "checkpoint-min-step", "cont-batching", "cpu-mask", "cpu-mask-batch", "cpu-moe"),
            *("cpu-range", "cpu-range-batch", "cpu-strict", "cpu-strict-batch", "ctx-checkpoints", "defrag-thold"),
            *("embd-normalize", "image-min-tokens", "kv-offload", "kv-unified", "kv-unified-per-slot", "lazy-mode"),
            *("load-mode", "mmproj-offload", "mtmd-batch-max-tokens", "n-cpu-ffn", "n-cpu-moe", "no-host", "numa"),
            *("op-offload", "override-kv", "override-tensor", "poll", "poll-batch", "pooling", "prio", "prio-batch"),
            *("repack", "rope-freq-base", "rope-freq-scale", "rope-scale", "rope-scaling", "sleep-idle-seconds"),
            *("slot-prompt-similarity", "swa-full", "threads", "threads-batch", "threads-http", "ubatch-size"),
            *("video-fps", "video-timestamp-interval", "warmup", "yarn-attn-factor", "yarn-beta-fast"),
            *("yarn-beta-slow", "yarn-ext-factor", "yarn-orig-ctx"),
        ),
    ),
    Group("memory", ("ctx-size",), owned="set `context` (tokens per request slot) instead"),
    Group("memory", ("parallel",), owned="set `parallel` instead"),
    Group("memory", ("gpu-layers",), owned="a model is on the card as a whole, or not in the catalog"),
    Group("memory", ("flash-attn",), owned="it is always on: what was measured is what runs"),
    Group("memory", ("fit", "fit-ctx", "fit-target"), owned=_NEVER_FITS),
    Group(
        "memory",
        ("context-shift",),
        owned="it is always off: a request that does not fit gets an error, not a shortened prompt",
    ),
    Group("memory", ("cache-ram",), owned="set `cache_ram_mib` instead"),
    Group("memory", ("image-max-tokens",), owned="set `image_max_tokens` instead"),
    Group("memory", ("embedding", "rerank"), owned="set `task: embedding` or `task: rerank` instead"),
    Group("memory", ("device", "main-gpu", "mmproj-device", "split-mode", "tensor-split"), not_counted=_DEVICES),
    Group("memory", ("backend-sampling",), not_counted="samplers on the card take memory of their own"),
    Group("memory", ("moe-cache-mib",), not_counted="a cache of experts takes memory of its own"),
    Group(
        "memory",
        (
            *("spec-default", "spec-draft-cpu-moe", "spec-draft-n-cpu-moe", "spec-draft-override-tensor"),
            *("spec-ngram-map-k-min-hits", "spec-ngram-map-k-size-m", "spec-ngram-map-k-size-n"),
            *("spec-ngram-map-k4v-min-hits", "spec-ngram-map-k4v-size-m", "spec-ngram-map-k4v-size-n"),
            *("spec-ngram-mod-n-match", "spec-ngram-mod-n-max", "spec-ngram-mod-n-min"),
            *("spec-ngram-simple-min-hits", "spec-ngram-simple-size-m", "spec-ngram-simple-size-n"),
        ),
        not_counted=_SPECULATION,
    ),
    Group(
        "memory",
        (
            *("spec-draft-cpu-mask", "spec-draft-cpu-mask-batch", "spec-draft-cpu-range"),
            *("spec-draft-cpu-strict", "spec-draft-cpu-strict-batch", "spec-draft-n-max", "spec-draft-n-min"),
            *("spec-draft-p-min", "spec-draft-p-split", "spec-draft-poll", "spec-draft-poll-batch"),
            *("spec-draft-prio", "spec-draft-prio-batch", "spec-draft-sampling", "spec-draft-threads"),
            *("spec-draft-threads-batch", "spec-draft-type-k", "spec-draft-type-v"),
        ),
    ),
    Group("memory", ("spec-type",), owned="write a draft model under `draft`", not_counted=_SPECULATION),
    Group("memory", ("spec-draft-ngl",), owned="a draft model is on the card as a whole"),
    Group("memory", ("spec-draft-backend-sampling",), owned="it is always off: samplers on the card take memory"),
    Group("memory", ("spec-draft-device",), not_counted=_DEVICES),
    Group(
        "sampling",
        (
            *("adaptive-decay", "adaptive-target", "dry-allowed-length", "dry-base", "dry-multiplier"),
            *("dry-penalty-last-n", "dry-sequence-breaker", "dynatemp-exp", "dynatemp-range", "frequency-penalty"),
            *("grammar", "ignore-eos", "json-schema", "keep", "logit-bias", "min-p", "mirostat", "mirostat-ent"),
            *("mirostat-lr", "predict", "presence-penalty", "repeat-last-n", "repeat-penalty", "reverse-prompt"),
            *("sampler-seq", "samplers", "seed", "temp", "top-k", "top-nsigma", "top-p", "typical"),
            *("xtc-probability", "xtc-threshold"),
        ),
    ),
    Group(
        "template",
        (
            *("chat-template", "chat-template-kwargs", "escape", "jinja", "prefill-assistant", "reasoning-budget"),
            *("reasoning-budget-message", "reasoning-effort", "reasoning-format", "reasoning-preserve"),
            *("skip-chat-parsing", "special", "spm-infill"),
        ),
    ),
    Group("template", ("reasoning",), owned="set `reasoning` instead"),
    Group("file", ("chat-template-file",), text_flag="chat-template"),
    Group("file", ("grammar-file",), text_flag="grammar"),
    Group("file", ("json-schema-file",), text_flag="json-schema"),
    Group(
        "file",
        ("lookup-cache-dynamic", "lookup-cache-static", "media-path", "path", "slot-save-path", "ui-config-file"),
    ),
    Group("file", ("control-vector", "control-vector-scaled"), not_counted=_ADAPTER),
    Group("file", ("lora", "lora-scaled"), owned="write the adapter under `adapters`"),
    Group("file", ("spec-draft-model",), owned="write the draft model under `draft`"),
    Group(
        "file",
        ("control-vector-layer-range",),
        never="it takes two values, which the catalog cannot hold",
        not_counted=_ADAPTER,
    ),
    Group(
        "file",
        ("lora-init-without-apply",),
        never="llama-server ignores it and applies the adapters: set lora-scaled to 'FILE:0.0'",
    ),
    Group("file", ("model",), owned="corral chooses the file from `source`"),
    Group("file", ("mmproj", "mmproj-auto"), owned=_PROJECTOR),
    Group(
        "network",
        (
            *("cors-credentials", "cors-headers", "cors-methods", "cors-origins", "sse-ping-interval", "tags"),
            *("timeout", "ui", "ui-config", "ui-mcp-proxy"),
        ),
    ),
    Group("network", ("rpc",), not_counted=_DEVICES),
    Group("network", ("alias",), owned="a response names the model by its id; write further names under `aliases`"),
    Group("network", ("host",), owned="llama-swap reaches the engine on loopback only"),
    Group("network", ("port",), owned="llama-swap gives each engine its port"),
    Group("network", ("offline",), owned="it is always on"),
    Group("network", ("reuse-port",), never="two engines would share a port, and mix up their requests"),
    Group(
        "network",
        ("api-key-file", "api-prefix", "ssl-cert-file", "ssl-key-file"),
        never="llama-swap reaches the engine over plain HTTP, without a key, at the root",
    ),
    Group("network", ("api-key",), never="llama-swap shows the whole command line at /running: keep secrets out of it"),
    Group(
        "network",
        (
            *("docker-repo", "embd-gemma-default", "fim-qwen-1.5b-default", "fim-qwen-14b-spec"),
            *("fim-qwen-30b-default", "fim-qwen-3b-default", "fim-qwen-7b-default", "fim-qwen-7b-spec"),
            *("gpt-oss-120b-default", "gpt-oss-20b-default", "hf-file", "hf-repo", "hf-token", "mmproj-url"),
            *("model-url", "spec-draft-hf", "vision-gemma-12b-default", "vision-gemma-4b-default"),
        ),
        never="corral runs the files that the lock names, and no others",
        not_counted="it brings another model",
    ),
    Group(
        "executes",
        ("agent", "mcp-servers-config", "mcp-servers-json", "tools", "tools-runtime", "video-ffmpeg-dir"),
    ),
    Group(
        "executes",
        ("models-autoload", "models-dir", "models-max", "models-preset"),
        never="one engine serves one model; llama-swap is the router",
    ),
    Group(
        "logs",
        (
            *("log-colors", "log-disable", "log-file", "log-jsonl", "log-prefix", "log-prompts-dir"),
            *("log-timestamps", "verbose", "verbosity"),
        ),
    ),
    Group("debug", ("perf", "props", "slots")),
    Group("debug", ("spec-synth-len", "spec-synth-rates"), not_counted=_SPECULATION),
    Group("debug", ("metrics",), owned="it is always on"),
    Group(
        "debug",
        ("cache-list", "completion-bash", "help", "list-devices", "version"),
        never="it prints and exits",
    ),
)

GROUP_OF: Mapping[str, Group] = {name: group for group in GROUPS for name in group.flags}
"""The group of each flag, by its first long name."""


_UNCLASSIFIED = Group(of="unclassified", flags=(), not_counted="what it does is not known here")


def group_of(flag: str) -> Group:
    """The group of *flag* (its first long name); one that allows nothing for a flag that has no class yet."""
    return GROUP_OF.get(flag, _UNCLASSIFIED)


def mismatches(engine: Collection[str]) -> Iterator[str]:
    """What is wrong with the classes for an *engine* with flags of these first long names, a sentence each."""
    for name, count in Counter(name for group in GROUPS for name in group.flags).items():
        if name not in engine:
            yield f"flag_classes.py classifies --{name}, which the engine does not have."
        if count > 1:
            yield f"flag_classes.py classifies --{name} {count} times."
    for name in sorted(set(engine) - GROUP_OF.keys()):
        yield f"--{name} of the engine has no class: add it to a group of flag_classes.py."
