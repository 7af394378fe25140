"""The shapes of published models, from their public configurations and llama.cpp's rules for mixing types.

Sources: each model's ``config.json`` on the hub, the tensor names in llama.cpp's ``src/models`` and
``tools/mtmd/clip.cpp``, and for the type of each tensor ``llama_tensor_get_type_impl`` in ``src/llama-quant.cpp``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as T

Tensor = tuple[str, tuple[int, ...], T]

_SMALLER_BLOCKS = {T.Q2_K: T.Q4_0, T.Q3_K: T.Q4_0, T.Q4_K: T.Q5_0, T.Q5_K: T.Q5_1, T.Q6_K: T.Q8_0}
"""What llama.cpp takes where a row is no multiple of 256."""


class U16(int):
    """A number that GGUF stores in 16 bits."""


class I32(int):
    """A number that GGUF stores with its sign."""


@dataclass
class Shape:
    """One model: what its header says."""

    architecture: str
    vocabulary: int = 0
    kind: str = "model"
    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)

    def add(self, name: str, *shape: int, kind: T = T.F32) -> None:
        """Append a tensor, row length first."""
        if shape[0] % GGML_QUANT_SIZES[kind][0]:
            kind = _SMALLER_BLOCKS.get(kind, T.F16)
        self.tensors.append((name, shape, kind))

    def norm(self, name: str, width: int, *, bias: bool = False) -> None:
        """Append the scale of a norm, and its offset."""
        self.add(f"{name}.weight", width)
        if bias:
            self.add(f"{name}.bias", width)

    def linear(self, name: str, width_in: int, width_out: int, kind: T, *, bias: bool = False) -> None:
        """Append a matrix, and its bias."""
        self.add(f"{name}.weight", width_in, width_out, kind=kind)
        if bias:
            self.add(f"{name}.bias", width_out)


def q4_k_m(layer: int, layers: int) -> T:
    """The type of attn_v and ffn_down in a Q4_K_M file; everything else is Q4_K, the output Q6_K."""
    more = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
    return T.Q6_K if more else T.Q4_K


def _model(
    architecture: str,
    vocabulary: int,
    layers: int,
    width: int,
    heads: int,
    kv_heads: int,
    head: int,
    ff: int,
    context: int,
    **more: Any,
) -> Shape:
    prefix = architecture
    metadata = {
        "block_count": layers,
        "context_length": context,
        "embedding_length": width,
        "feed_forward_length": ff,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.key_length": head,
        "attention.value_length": head,
        "rope.freq_base": 1e6,
    }
    metadata |= {key.replace("__", "."): value for key, value in more.items()}
    return Shape(architecture, vocabulary, metadata={f"{prefix}.{key}": value for key, value in metadata.items()})


def _ends(shape: Shape, width: int, *, embedding: T, output: T | None) -> None:
    shape.add("token_embd.weight", width, shape.vocabulary, kind=embedding)
    shape.add("output_norm.weight", width)
    if output is not None:
        shape.add("output.weight", width, shape.vocabulary, kind=output)


def _attention(
    shape: Shape,
    layer: str,
    width: int,
    heads: int,
    kv_heads: int,
    head: int,
    kind: T,
    value: T,
    *,
    bias: bool = False,
    norms: bool = False,
) -> None:
    shape.linear(f"{layer}.attn_q", width, heads * head, kind, bias=bias)
    shape.linear(f"{layer}.attn_k", width, kv_heads * head, kind, bias=bias)
    shape.linear(f"{layer}.attn_v", width, kv_heads * head, value, bias=bias)
    shape.linear(f"{layer}.attn_output", heads * head, width, kind)
    if norms:
        shape.norm(f"{layer}.attn_q_norm", head)
        shape.norm(f"{layer}.attn_k_norm", head)


def _dense(
    architecture: str,
    vocabulary: int,
    layers: int,
    width: int,
    heads: int,
    kv_heads: int,
    head: int,
    ff: int,
    context: int,
    *,
    tied: bool = False,
    bias: bool = False,
    qk_norms: bool = True,
    post_norms: bool = False,
    rope_factors: int = 0,
    all_of: T | None = None,
    **more: Any,
) -> Shape:
    shape = _model(architecture, vocabulary, layers, width, heads, kv_heads, head, ff, context, **more)
    embedding = all_of or (T.Q6_K if tied else T.Q4_K)
    _ends(shape, width, embedding=embedding, output=None if tied else all_of or T.Q6_K)
    if rope_factors:
        shape.add("rope_freqs.weight", rope_factors)
    for number in range(layers):
        layer, kind, down = f"blk.{number}", all_of or T.Q4_K, all_of or q4_k_m(number, layers)
        shape.norm(f"{layer}.attn_norm", width)
        _attention(shape, layer, width, heads, kv_heads, head, kind, down, bias=bias, norms=qk_norms)
        if post_norms:
            shape.norm(f"{layer}.post_attention_norm", width)
            shape.norm(f"{layer}.post_ffw_norm", width)
        shape.norm(f"{layer}.ffn_norm", width)
        shape.linear(f"{layer}.ffn_gate", width, ff, kind)
        shape.linear(f"{layer}.ffn_up", width, ff, kind)
        shape.linear(f"{layer}.ffn_down", ff, width, down)
    return shape


def qwen3_06b() -> Shape:
    """https://huggingface.co/Qwen/Qwen3-0.6B-GGUF, Q8_0."""
    return _dense("qwen3", 151936, 28, 1024, 16, 8, 128, 3072, 40960, tied=True, all_of=T.Q8_0)


def qwen3_4b() -> Shape:
    """https://huggingface.co/Qwen/Qwen3-4B-GGUF, Q4_K_M."""
    return _dense("qwen3", 151936, 36, 2560, 32, 8, 128, 9728, 40960, tied=True)


def qwen3_8b() -> Shape:
    """https://huggingface.co/Qwen/Qwen3-8B-GGUF, Q4_K_M."""
    return _dense("qwen3", 151936, 36, 4096, 32, 8, 128, 12288, 40960)


_QWEN3VL = {"rope__dimension_sections": [24, 20, 20, 0], "n_deepstack_layers": 3}


def qwen3vl_4b() -> Shape:
    """https://huggingface.co/Qwen/Qwen3-VL-4B-Instruct-GGUF, Q4_K_M."""
    return _dense("qwen3vl", 151936, 36, 2560, 32, 8, 128, 9728, 262144, tied=True, **_QWEN3VL)


def qwen3vl_8b() -> Shape:
    """https://huggingface.co/Qwen/Qwen3-VL-8B-Instruct-GGUF, Q4_K_M."""
    return _dense("qwen3vl", 151936, 36, 4096, 32, 8, 128, 12288, 262144, **_QWEN3VL)


def gemma3_4b() -> Shape:
    """https://huggingface.co/google/gemma-3-4b-it, Q4_K_M: five layers of six look back 1024 tokens."""
    return _dense(
        "gemma3", 262208, 34, 2560, 8, 4, 256, 10240, 131072, tied=True, post_norms=True, attention__sliding_window=1024
    )


def llama31_8b() -> Shape:
    """https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct, Q4_K_M."""
    return _dense("llama", 128256, 32, 4096, 32, 8, 128, 14336, 131072, qk_norms=False, rope_factors=64)


def qwen25_7b() -> Shape:
    """https://huggingface.co/Qwen/Qwen2.5-7B-Instruct, Q4_K_M."""
    return _dense("qwen2", 152064, 28, 3584, 28, 4, 128, 18944, 32768, qk_norms=False, bias=True)


def minicpm_v45() -> Shape:
    """https://huggingface.co/openbmb/MiniCPM-V-4_5-gguf, Q4_K_M: Qwen3-8B with another vocabulary."""
    return _dense("qwen3", 151748, 36, 4096, 32, 8, 128, 12288, 40960)


def qwen3_30b_a3b() -> Shape:
    """https://huggingface.co/Qwen/Qwen3-30B-A3B-GGUF, Q4_K_M: 128 experts, 8 used."""
    layers, width, heads, kv_heads, head, ff, experts = 48, 2048, 32, 4, 128, 768, 128
    more = {"expert_feed_forward_length": ff, "expert_count": experts, "expert_used_count": 8}
    shape = _model("qwen3moe", 151936, layers, width, heads, kv_heads, head, 6144, 40960, **more)
    _ends(shape, width, embedding=T.Q4_K, output=T.Q6_K)
    for number in range(layers):
        layer, down = f"blk.{number}", q4_k_m(number, layers)
        shape.norm(f"{layer}.attn_norm", width)
        _attention(shape, layer, width, heads, kv_heads, head, T.Q4_K, down, norms=True)
        shape.norm(f"{layer}.ffn_norm", width)
        shape.linear(f"{layer}.ffn_gate_inp", width, experts, T.F32)
        _experts(shape, layer, width, ff, experts, T.Q4_K, down)
    return shape


def _experts(
    shape: Shape, layer: str, width: int, ff: int, experts: int, kind: T, down: T, *, bias: bool = False
) -> None:
    for name, rows, columns, which in (("gate", width, ff, kind), ("up", width, ff, kind), ("down", ff, width, down)):
        shape.add(f"{layer}.ffn_{name}_exps.weight", rows, columns, experts, kind=which)
        if bias:
            shape.add(f"{layer}.ffn_{name}_exps.bias", columns, experts)


def gpt_oss_20b() -> Shape:
    """https://huggingface.co/ggml-org/gpt-oss-20b-GGUF, MXFP4: experts in MXFP4, every other layer looks back 128."""
    layers, width, heads, kv_heads, head, ff, experts = 24, 2880, 64, 8, 64, 2880, 32
    more = {
        "expert_feed_forward_length": ff,
        "expert_count": experts,
        "expert_used_count": 4,
        "attention__sliding_window": 128,
    }
    shape = _model("gpt-oss", 201088, layers, width, heads, kv_heads, head, ff, 131072, **more)
    _ends(shape, width, embedding=T.Q8_0, output=T.Q8_0)
    for number in range(layers):
        layer = f"blk.{number}"
        shape.norm(f"{layer}.attn_norm", width)
        _attention(shape, layer, width, heads, kv_heads, head, T.Q8_0, T.Q8_0, bias=True)
        shape.add(f"{layer}.attn_output.bias", width)
        shape.add(f"{layer}.attn_sinks.weight", heads)
        shape.norm(f"{layer}.post_attention_norm", width)
        shape.linear(f"{layer}.ffn_gate_inp", width, experts, T.F32, bias=True)
        _experts(shape, layer, width, ff, experts, T.MXFP4, T.MXFP4, bias=True)
    return shape


def deepseek_v2_lite() -> Shape:
    """https://huggingface.co/deepseek-ai/DeepSeek-V2-Lite, Q4_K_M: latent attention, 64 experts, 6 used."""
    layers, width, heads, latent, rope, nope, value = 27, 2048, 16, 512, 64, 128, 128
    dense_ff, ff, experts, shared = 10944, 1408, 64, 2
    more = {
        "attention__value_length": latent,
        "attention__key_length_mla": nope + rope,
        "attention__value_length_mla": value,
        "attention__kv_lora_rank": latent,
        "rope__dimension_count": rope,
        "leading_dense_block_count": 1,
        "expert_feed_forward_length": ff,
        "expert_count": experts,
        "expert_used_count": 6,
        "expert_shared_count": shared,
        "expert_weights_scale": 1.0,
    }
    shape = _model("deepseek2", 102400, layers, width, heads, 1, latent + rope, dense_ff, 163840, **more)
    _ends(shape, width, embedding=T.Q4_K, output=T.Q6_K)
    for number in range(layers):
        layer, down = f"blk.{number}", q4_k_m(number, layers)
        shape.norm(f"{layer}.attn_norm", width)
        shape.linear(f"{layer}.attn_q", width, heads * (nope + rope), T.Q4_K)
        shape.linear(f"{layer}.attn_kv_a_mqa", width, latent + rope, T.Q4_K)
        shape.norm(f"{layer}.attn_kv_a_norm", latent)
        shape.add(f"{layer}.attn_k_b.weight", nope, latent, heads, kind=T.Q4_K)
        shape.add(f"{layer}.attn_v_b.weight", latent, value, heads, kind=down)
        shape.linear(f"{layer}.attn_output", heads * value, width, T.Q4_K)
        shape.norm(f"{layer}.ffn_norm", width)
        if number == 0:
            shape.linear(f"{layer}.ffn_gate", width, dense_ff, T.Q4_K)
            shape.linear(f"{layer}.ffn_up", width, dense_ff, T.Q4_K)
            shape.linear(f"{layer}.ffn_down", dense_ff, width, down)
            continue
        shape.linear(f"{layer}.ffn_gate_inp", width, experts, T.F32)
        _experts(shape, layer, width, ff, experts, T.Q4_K, down)
        shape.linear(f"{layer}.ffn_gate_shexp", width, ff * shared, T.Q4_K)
        shape.linear(f"{layer}.ffn_up_shexp", width, ff * shared, T.Q4_K)
        shape.linear(f"{layer}.ffn_down_shexp", ff * shared, width, down)
    return shape


def qwen36_27b() -> Shape:
    """https://huggingface.co/Qwen/Qwen3.6-27B, Q2_K: every fourth layer has attention, the others a state."""
    layers, width, heads, kv_heads, head, ff = 64, 5120, 24, 4, 256, 17408
    state, key_heads, value_heads, kernel = 128, 16, 48, 4
    keys, values = state * key_heads, state * value_heads
    more = {
        "rope__dimension_count": 64,
        "rope__dimension_sections": [11, 11, 10, 0],
        "full_attention_interval": 4,
        "ssm__conv_kernel": kernel,
        "ssm__state_size": state,
        "ssm__group_count": key_heads,
        "ssm__time_step_rank": value_heads,
        "ssm__inner_size": values,
    }
    shape = _model("qwen35", 248320, layers, width, heads, kv_heads, head, ff, 262144, **more)
    _ends(shape, width, embedding=T.Q2_K, output=T.Q6_K)
    for number in range(layers):
        layer = f"blk.{number}"
        shape.norm(f"{layer}.attn_norm", width)
        if number % 4 == 3:
            shape.linear(f"{layer}.attn_q", width, 2 * heads * head, T.Q2_K)
            shape.linear(f"{layer}.attn_k", width, kv_heads * head, T.Q2_K)
            shape.linear(f"{layer}.attn_v", width, kv_heads * head, T.Q4_K)
            shape.linear(f"{layer}.attn_output", heads * head, width, T.Q3_K)
            shape.norm(f"{layer}.attn_q_norm", head)
            shape.norm(f"{layer}.attn_k_norm", head)
        else:
            shape.linear(f"{layer}.attn_qkv", width, 2 * keys + values, T.Q4_K)
            shape.linear(f"{layer}.attn_gate", width, values, T.Q2_K)
            shape.add(f"{layer}.ssm_conv1d.weight", kernel, 2 * keys + values)
            shape.add(f"{layer}.ssm_dt.bias", value_heads)
            shape.add(f"{layer}.ssm_a", value_heads)
            shape.linear(f"{layer}.ssm_beta", width, value_heads, T.Q2_K)
            shape.linear(f"{layer}.ssm_alpha", width, value_heads, T.Q2_K)
            shape.norm(f"{layer}.ssm_norm", state)
            shape.linear(f"{layer}.ssm_out", values, width, T.Q2_K)
        shape.norm(f"{layer}.post_attention_norm", width)
        shape.linear(f"{layer}.ffn_gate", width, ff, T.Q2_K)
        shape.linear(f"{layer}.ffn_up", width, ff, T.Q2_K)
        shape.linear(f"{layer}.ffn_down", ff, width, T.Q3_K)
    return shape


def nomic_embed() -> Shape:
    """https://huggingface.co/nomic-ai/nomic-embed-text-v1.5-GGUF, F16: an encoder for embeddings."""
    layers, width, heads, ff, kind = 12, 768, 12, 3072, T.F16
    more = {"attention__layer_norm_epsilon": 1e-12, "attention__causal": False, "pooling_type": 1}
    shape = _model("nomic-bert", 30522, layers, width, heads, heads, width // heads, ff, 2048, **more)
    shape.metadata["tokenizer.ggml.token_type_count"] = 2
    shape.add("token_embd.weight", width, shape.vocabulary, kind=kind)
    shape.add("token_types.weight", width, 2)
    shape.norm("token_embd_norm", width, bias=True)
    for number in range(layers):
        layer = f"blk.{number}"
        shape.linear(f"{layer}.attn_qkv", width, 3 * width, kind)
        shape.linear(f"{layer}.attn_output", width, width, kind)
        shape.norm(f"{layer}.attn_output_norm", width, bias=True)
        shape.linear(f"{layer}.ffn_up", width, ff, kind)
        shape.linear(f"{layer}.ffn_gate", width, ff, kind)
        shape.linear(f"{layer}.ffn_down", ff, width, kind)
        shape.norm(f"{layer}.layer_output_norm", width, bias=True)
    return shape
