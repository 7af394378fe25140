"""Turn the GGUF of SmolLM2 into a folder of safetensors that vLLM can serve; run by the environment of make test-vllm.

python tools/dev/smollm2_safetensors.py MODEL.gguf FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch  # type: ignore[import-not-found]
from transformers import AutoModelForCausalLM, AutoTokenizer  # type: ignore[import-not-found]


def main(gguf: Path, folder: Path) -> None:
    """Write the weights of *gguf*, no longer quantised, as bfloat16, with configuration and tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    read = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    config = read.config
    vars(config).pop("quantization_config", None)
    plain = type(read)(config).to(torch.bfloat16)
    plain.load_state_dict(read.state_dict())
    plain.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
