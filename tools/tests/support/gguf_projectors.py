"""The shapes of published vision projectors; sources as in ``gguf_shapes``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gguf import GGMLQuantizationType as T

from tests.support.gguf_shapes import I32, Shape


@dataclass(frozen=True)
class Tower:
    """The transformer that looks at the patches."""

    width: int
    ff: int
    layers: int
    heads: int = 16


SO400M = Tower(1152, 4304, 27)
"""SigLIP 2 so400m: https://huggingface.co/google/siglip2-so400m-patch14-384."""
LARGE = Tower(1024, 4096, 24)
"""SigLIP 2 large: https://huggingface.co/google/siglip2-large-patch16-256."""


def _projector(
    kind: str, image_size: int, patch_size: int, projection: int, tower: Tower = SO400M, **more: Any
) -> Shape:
    vision = {
        "image_size": image_size,
        "patch_size": patch_size,
        "embedding_length": tower.width,
        "feed_forward_length": tower.ff,
        "block_count": tower.layers,
        "projection_dim": projection,
        "attention.head_count": tower.heads,
        "attention.layer_norm_epsilon": 1e-6,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        **more,
    }
    metadata = {"clip.has_vision_encoder": True, "clip.projector_type": kind, "clip.use_gelu": True}
    return Shape(
        "clip", kind="mmproj", metadata=metadata | {f"clip.vision.{key}": value for key, value in vision.items()}
    )


def _tower(shape: Shape, kind: T, tower: Tower = SO400M, *, fused: bool) -> None:
    for number in range(tower.layers):
        layer = f"v.blk.{number}"
        shape.norm(f"{layer}.ln1", tower.width, bias=True)
        shape.norm(f"{layer}.ln2", tower.width, bias=True)
        if fused:
            shape.linear(f"{layer}.attn_qkv", tower.width, 3 * tower.width, kind, bias=True)
        else:
            for name in ("q", "k", "v"):
                shape.linear(f"{layer}.attn_{name}", tower.width, tower.width, kind, bias=True)
        shape.linear(f"{layer}.attn_out", tower.width, tower.width, kind, bias=True)
        shape.linear(f"{layer}.ffn_up", tower.width, tower.ff, kind, bias=True)
        shape.linear(f"{layer}.ffn_down", tower.ff, tower.width, kind, bias=True)


def qwen3vl_4b() -> Shape:
    """https://huggingface.co/Qwen/Qwen3-VL-4B-Instruct-GGUF, F16."""
    return _qwen3vl(2560, LARGE, (5, 11, 17), T.F16)


def qwen3vl_8b(kind: T = T.F16) -> Shape:
    """https://huggingface.co/Qwen/Qwen3-VL-8B-Instruct-GGUF, F16 or Q8_0."""
    return _qwen3vl(4096, SO400M, (8, 16, 24), kind)


def _qwen3vl(projection: int, tower: Tower, deepstack: tuple[int, ...], kind: T) -> Shape:
    """Patches of 16 pixels, four of them a token; some layers feed the language model directly."""
    width, merged = tower.width, 4 * tower.width
    layers = {"spatial_merge_size": 2, "is_deepstack_layers": [number in deepstack for number in range(tower.layers)]}
    shape = _projector("qwen3vl_merger", 768, 16, projection, tower, **layers)
    shape.add("v.patch_embd.weight", 16, 16, 3, width, kind=T.F16)
    shape.add("v.patch_embd.weight.1", 16, 16, 3, width, kind=T.F16)
    shape.add("v.patch_embd.bias", width)
    shape.add("v.position_embd.weight", width, 2304)
    shape.norm("v.post_ln", width, bias=True)
    shape.linear("mm.0", merged, merged, kind, bias=True)
    shape.linear("mm.2", merged, projection, kind, bias=True)
    _tower(shape, kind, tower, fused=True)
    for number in deepstack:
        layer = f"v.deepstack.{number}"
        shape.norm(f"{layer}.norm", merged, bias=True)
        shape.linear(f"{layer}.fc1", merged, merged, kind, bias=True)
        shape.linear(f"{layer}.fc2", merged, projection, kind, bias=True)
    return shape


def qwen25vl_7b() -> Shape:
    """https://huggingface.co/Qwen/Qwen2.5-VL-7B-Instruct, F16: most layers attend within windows."""
    tower, projection, kind = Tower(1280, 3420, 32), 3584, T.F16
    width, merged = tower.width, 4 * tower.width
    shape = _projector("qwen2.5vl_merger", 560, 14, projection, tower, spatial_merge_size=2, n_wa_pattern=8)
    shape.metadata |= {"clip.use_gelu": False, "clip.use_silu": True}
    shape.add("v.patch_embd.weight", 14, 14, 3, width, kind=kind)
    shape.add("v.patch_embd.weight.1", 14, 14, 3, width, kind=kind)
    shape.norm("v.post_ln", width)
    shape.linear("mm.0", merged, merged, kind, bias=True)
    shape.linear("mm.2", merged, projection, kind, bias=True)
    for number in range(tower.layers):
        layer = f"v.blk.{number}"
        shape.norm(f"{layer}.ln1", width)
        shape.norm(f"{layer}.ln2", width)
        for name in ("q", "k", "v", "out"):
            shape.linear(f"{layer}.attn_{name}", width, width, kind, bias=True)
        shape.linear(f"{layer}.ffn_gate", width, tower.ff, kind, bias=True)
        shape.linear(f"{layer}.ffn_up", width, tower.ff, kind, bias=True)
        shape.linear(f"{layer}.ffn_down", tower.ff, width, kind, bias=True)
    return shape


def minicpm_v45() -> Shape:
    """https://huggingface.co/openbmb/MiniCPM-V-4_5-gguf, F16: slices of at most 448 pixels, 64 tokens each."""
    width, grid = 4096, 70 * 70
    shape = _projector("resampler", 448, 14, 0)
    shape.metadata |= {"clip.minicpmv_version": I32(6), "clip.minicpmv_query_num": 64}
    shape.add("v.patch_embd.weight", 14, 14, 3, SO400M.width, kind=T.F16)
    shape.add("v.patch_embd.bias", SO400M.width)
    shape.add("v.position_embd.weight", SO400M.width, grid)
    shape.norm("v.post_ln", SO400M.width, bias=True)
    _tower(shape, T.F16, fused=False)
    shape.add("resampler.pos_embed_k", width, grid)
    shape.add("resampler.query", width, 64)
    shape.add("resampler.proj.weight", width, width, kind=T.F16)
    shape.add("resampler.kv.weight", SO400M.width, width, kind=T.F16)
    for name in ("q", "k", "v", "out"):
        shape.linear(f"resampler.attn.{name}", width, width, T.F16, bias=True)
    for name in ("q", "kv", "post"):
        shape.norm(f"resampler.ln_{name}", width, bias=True)
    return shape


def gemma3_4b() -> Shape:
    """https://huggingface.co/google/gemma-3-4b-it, F16: every image is 896 pixels square, 256 tokens."""
    width = 2560
    shape = _projector("gemma3", 896, 14, width)
    shape.add("v.patch_embd.weight", 14, 14, 3, SO400M.width, kind=T.F16)
    shape.add("v.patch_embd.bias", SO400M.width)
    shape.add("v.position_embd.weight", SO400M.width, 64 * 64)
    shape.norm("v.post_ln", SO400M.width, bias=True)
    _tower(shape, T.F16, fused=False)
    shape.add("mm.input_projection.weight", width, SO400M.width, kind=T.F16)
    shape.add("mm.soft_emb_norm.weight", SO400M.width)
    return shape
