"""The command line that is measured, rendered and run."""

from corral.agent.lock_file import LockedFile
from corral.catalog.argv import llama_server_argv
from corral.catalog.intent import Model

SHA = "0" * 64


def model(**changes):
    intent = {
        "source": {"repo": "org/m", "quant": "Q4_K_M"},
        "card": "t4",
        "context": 3072,
        "modalities": ["text"],
        **changes,
    }
    return Model.model_validate(intent)


def file(path, role="model"):
    return LockedFile(path=path, role=role, size=1, sha256=SHA)


def test_a_text_model_says_everything_that_decides_memory():
    argv = llama_server_argv("qwen3-8b", model(parallel=2, reasoning="off"), [file("a.gguf")])

    assert argv == [
        *("llama-server", "-m", "${STORE}/qwen3-8b/model.gguf", "--alias", "qwen3-8b"),
        *("-c", "6144", "-np", "2", "-ngl", "99", "-fa", "on", "-fit", "off", "--no-context-shift"),
        *("--cache-ram", "1024", "--reasoning", "off", "--metrics", "--offline"),
        *("--host", "127.0.0.1", "--port", "${PORT}"),
    ]  # fmt: skip


def test_a_vision_model_has_its_projector_and_its_image_limit():
    files = [file("a.gguf"), file("mmproj-F16.gguf", "projector")]

    argv = llama_server_argv("v", model(modalities=["text", "image"]), files)

    assert argv[5:9] == ["--mmproj", "${STORE}/v/mmproj.gguf", "--image-max-tokens", "1024"]  # fmt: skip


def test_a_split_model_is_named_by_its_first_shard():
    files = [file("x-00001-of-00002.gguf"), file("x-00002-of-00002.gguf")]

    assert llama_server_argv("big", model(), files)[2] == "${STORE}/big/model-00001-of-00002.gguf"


def test_no_removed_flag_is_ever_written():
    argv = llama_server_argv("m", model(args={"swa-full": True}), [file("a.gguf")])

    assert not {"--no-mmap", "--mlock", "--draft-max"} & set(argv)
    assert argv.index("--swa-full") < argv.index("--host")


def test_adapters_with_a_name_start_without_effect_and_no_prompt_is_kept_for_another_one():
    source = {"repo": "org/lora", "file": "a.gguf"}
    adapters = [{"source": source, "scale": 0.5}, {"source": source, "scale": 2, "name": "sql"}]
    files = [file("a.gguf"), file("b.gguf", "adapter"), file("c.gguf", "adapter")]

    argv = llama_server_argv("m", model(adapters=adapters), files)

    assert argv[argv.index("--lora-scaled") + 1] == (
        "${STORE}/m/adapter-1.gguf:0.5,${STORE}/m/adapter-2.gguf:0"
    )  # fmt: skip
    assert argv[argv.index("--cache-ram") + 1] == "0"
