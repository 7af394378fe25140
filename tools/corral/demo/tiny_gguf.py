"""Tiny GGUF models that llama.cpp loads in milliseconds and whose answers are known (``corral.demo.tiny_weights``).

They test the whole path: real engine, real HTTP, real swapping, real images, and an answer that is right or wrong.
About 650 KB each, with the same bytes on every machine, so that their sha256 can stand in a lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, LlamaFileType

from corral.demo import tiny_weights as weights
from corral.demo.tiny_weights import VOCABULARY, Array

CONTEXT = 4096
"""Tokens that the models state as their trained context."""
DEFAULT_FF = 64

_EPSILON = 1e-6
_TEMPLATE = (
    "{%- for m in messages %}"
    "{{- '<|im_start|>' + m.role + '\\n' }}"
    "%THOUGHT%"
    "{%- if m.content is string %}{{- m.content }}"
    "{%- else %}{%- for part in m.content %}"
    "{%- if part.type == 'text' or part.type == 'media_marker' %}{{- part.text }}{%- endif %}"
    "{%- endfor %}{%- endif %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}%NO_THOUGHT%{%- endif %}"
)
# llama-server separates reasoning from the answer only when the template renders reasoning_content between tags.
_THOUGHT = (
    "{%- if m.role == 'assistant' and m.reasoning_content %}"
    "{{- '<think>' + m.reasoning_content + '</think>\\n\\n' }}{%- endif %}"
)
_NO_THOUGHT = (
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
)


@dataclass(frozen=True)
class TinyModels:
    """Where the files of ``write_all`` are."""

    text: Path
    thinking: Path
    vision: Path
    projector: Path


def write_all(folder: Path) -> TinyModels:
    """Write every tiny model into *folder* (made when missing) and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("tiny-text-F16", "tiny-think-F16", "tiny-vision-F16", "mmproj-tiny-vision-F32")
    models = TinyModels(*(folder / f"{name}.gguf" for name in names))
    write_text(models.text)
    write_text(models.thinking, thinking=True)
    write_text(models.vision, vision=True)
    write_projector(models.projector)
    return models


def write_text(path: Path, *, thinking: bool = False, vision: bool = False, n_ff: int = DEFAULT_FF) -> None:
    """Write a language model that answers ``OK``.

    Args:
        path: the file to write; an existing one is replaced.
        thinking: reason (``hm``) before the answer, with a template for it.
        vision: be the language half of a vision model, for ``write_projector``: name the colour of each image.
        n_ff: makes the file bigger and the model slower without changing an answer: 100_000 is 190 MB and some
            50 tokens a second on one core.
    """
    architecture = "qwen3vl" if vision else "qwen3"
    writer = GGUFWriter(path, architecture)
    add_text_header(writer, n_ff=n_ff, layers=2 if vision else 1)
    if vision:
        writer.add_rope_dimension_sections(weights.ROPE_SECTIONS)
        writer.add_num_deepstack_layers(0)
    add_tokenizer(writer, thinking=thinking, begins=vision)
    finish(writer, weights.text_tensors(thinking=thinking, vision=vision, n_ff=n_ff), halves=True)


def write_projector(path: Path) -> None:
    """Write the projector of the vision model: dynamic resolution, like Qwen3-VL's."""
    writer = GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_name("tiny-projector")
    writer.add_file_type(LlamaFileType.ALL_F32)
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "qwen3vl_merger")
    writer.add_bool("clip.use_gelu", True)
    writer.add_uint32("clip.vision.image_size", weights.TRAINED_IMAGE)
    writer.add_uint32("clip.vision.patch_size", weights.PATCH)
    writer.add_uint32("clip.vision.spatial_merge_size", weights.MERGE)
    writer.add_uint32("clip.vision.embedding_length", weights.VISION_WIDTH)
    writer.add_uint32("clip.vision.feed_forward_length", weights.VISION_FF)
    writer.add_uint32("clip.vision.projection_dim", weights.WIDTH)
    writer.add_uint32("clip.vision.block_count", 1)
    writer.add_uint32("clip.vision.attention.head_count", 2)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", _EPSILON)
    # A pixel of 0…255 becomes -1…1.
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    finish(writer, weights.projector_tensors())


def add_text_header(writer: GGUFWriter, *, n_ff: int, layers: int) -> None:
    """Add to *writer* what the header of a language model of these weights has, its tokenizer aside."""
    writer.add_type("model")
    writer.add_name(f"tiny-{writer.arch}")
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(weights.WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_key_length(weights.HEAD_WIDTH)
    writer.add_value_length(weights.HEAD_WIDTH)
    writer.add_rope_dimension_count(weights.HEAD_WIDTH)
    writer.add_layer_norm_rms_eps(_EPSILON)


def add_tokenizer(writer: GGUFWriter, *, thinking: bool, begins: bool) -> None:
    """Add the tokenizer to *writer*, and the template of a model that is *thinking*; *begins*: texts have a start."""
    writer.add_vocab_size(len(VOCABULARY))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(VOCABULARY.tokens)
    writer.add_token_types(VOCABULARY.types)
    writer.add_token_merges(VOCABULARY.merges)
    writer.add_eos_token_id(VOCABULARY["<|im_end|>"])
    writer.add_pad_token_id(VOCABULARY["<|endoftext|>"])
    writer.add_bos_token_id(VOCABULARY["<|endoftext|>"])
    writer.add_add_bos_token(begins)
    thought, no_thought = (_THOUGHT, _NO_THOUGHT) if thinking else ("", "")
    writer.add_chat_template(_TEMPLATE.replace("%THOUGHT%", thought).replace("%NO_THOUGHT%", no_thought))


def finish(writer: GGUFWriter, tensors: Iterable[tuple[str, Array | np.ndarray]], *, halves: bool = False) -> None:
    """Write the file of *writer* with *tensors*, and close it; with *halves*, matrices are F16."""
    for name, values in tensors:
        is_half = halves and values.ndim > 1
        writer.add_tensor(name, values.astype(np.float16, copy=False) if is_half else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
