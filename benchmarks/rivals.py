"""Other engines on the same prompts, for `engine.py --gguf FILE`: whichever of these packages is installed.

    pip install xllamacpp                       # llama.cpp
    pip install openvino-genai                  # OpenVINO GenAI

Both read the GGUF file itself and compute with the weights as it holds them (4 bits, say), so they write other text
than a float32 model and are there for the speed alone. The arms' names carry the precision.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["rivals"]

Run = Callable[[list[int]], tuple[int, ...]]


def rivals(gguf: Path, tokenizer: Any, tokens: int, threads: int) -> dict[str, Run]:
    """Ways to decode a prompt with the engines that are there, by name; what they return is only as long as asked."""
    precision = gguf.stem.rsplit(".", 1)[-1]
    found: dict[str, Run] = {}
    if find_spec("xllamacpp"):
        found[f"llama.cpp {precision}"] = _llama(gguf, tokenizer, tokens, threads)
    if find_spec("openvino_genai"):
        found[f"OpenVINO GenAI {precision}"] = _openvino(gguf, tokenizer, tokens, threads)
    return found


def _llama(gguf: Path, tokenizer: Any, tokens: int, threads: int) -> Run:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(gguf)
    parameters.n_ctx, parameters.n_parallel = 4096, 1
    parameters.cpuparams.n_threads = threads
    server = xllamacpp.Server(parameters)

    def run(ids: list[int]) -> tuple[int, ...]:
        request = {"prompt": tokenizer.decode(ids), "max_tokens": tokens, "temperature": 0.0, "ignore_eos": True}
        answer = server.handle_completions({**request, "cache_prompt": False})
        assert answer["usage"]["completion_tokens"] == tokens, answer["usage"]
        return (0,) * tokens

    return run


def _openvino(gguf: Path, tokenizer: Any, tokens: int, threads: int) -> Run:
    import openvino_genai

    pipeline = openvino_genai.LLMPipeline(str(gguf), "CPU", INFERENCE_NUM_THREADS=threads)
    settings = openvino_genai.GenerationConfig()
    settings.max_new_tokens = settings.min_new_tokens = tokens
    settings.do_sample, settings.ignore_eos, settings.apply_chat_template = False, True, False

    def run(ids: list[int]) -> tuple[int, ...]:
        pipeline.generate([tokenizer.decode(ids)], settings)
        return (0,) * tokens

    return run
