"""How probable each token of an answer was, by llama.cpp in this very process: no server, no port for others.

.venv/bin/python docs/llama-cpp/probabilities.py MODEL.gguf PROMPT
"""

import sys
from math import exp

from corral.engine import openmp

openmp.provide()  # before xllamacpp: the wheel links libgomp, which a bare Debian lacks
import xllamacpp  # noqa: E402

model, prompt = sys.argv[1:]
params = xllamacpp.CommonParams()
params.model.path = model
params.n_ctx = 512
params.warmup = False
params.port = 0  # of a listener that the binding always opens, on 127.0.0.1: any free one
params.verbosity = 1  # errors alone
engine = xllamacpp.Server(params)
answer = engine.handle_completions({"prompt": prompt, "n_predict": 4, "n_probs": 3, "temperature": 0})
for token in answer["choices"][0]["logprobs"]["content"]:
    others = ", ".join(f"{one['token']!r} {exp(one['logprob']):.0%}" for one in token["top_logprobs"])
    print(f"{token['token']!r:12} {exp(token['logprob']):5.1%}   {others}")
