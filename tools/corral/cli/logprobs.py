"""Show how probable each token of an answer was, and what else the model could have written there.

The answer has always the likeliest token.  A probability is that among all tokens, before any sampling.

Without --endpoint it is the local stack, with --context the llama-swap in that cluster, through a forwarded port.  The
key is the operator's own, or CORRAL_API_KEY.

examples:
  corral logprobs qwen3-8b "What is 2+2?"
  corral logprobs qwen3-8b "Is this spam? Answer yes or no: You have won" --tokens 1 --top 10
  corral logprobs qwen3-8b "What is 2+2?" --json | jq '[.tokens[].probability] | min'
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import TYPE_CHECKING

from corral import output
from corral.agent.progress import positive_seconds
from corral.cli import endpoints, options
from corral.errors import CannotRun, Failed

if TYPE_CHECKING:
    from corral.cli.endpoints import ServedEndpoint
    from corral.contract.probabilities import Chosen, Share

_MOST_TOP = 20  # the API's limit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the id of a model")
    parser.add_argument("prompt", metavar="PROMPT", help="the question")
    options.add(parser, "--catalog", "--json")
    endpoints.add_argument(parser)
    tokens, top = "the most of the answer (default: 32)", "the likeliest tokens of each position (default: 5)"
    parser.add_argument("--tokens", type=options.whole_number(1, 4096), default=32, metavar="N", help=tokens)
    parser.add_argument("--top", type=options.whole_number(1, _MOST_TOP), default=5, metavar="N", help=top)
    limit = "limit of the answer, a load included (default: 300)"
    parser.add_argument("--timeout", metavar="SECONDS", type=positive_seconds, default=300.0, help=limit)
    options.add_cluster(parser)


def run(args: argparse.Namespace) -> None:
    """Send the question, and print the table."""
    local, target = endpoints.named(args)
    options.require_chats(args, local or target, [args.model], "logprobs")
    with endpoints.opened(args, local, target, command="logprobs MODEL PROMPT") as place:
        tokens = asyncio.run(_tokens(args, place))
    document = {
        "model": args.model,
        "tokens": [{**_share(one), "top": [_share(other) for other in one.top]} for one in tokens],
    }
    rows = [
        (str(at), _quoted(one.text), _percent(one.probability), ", ".join(map(_alternative, one.top)))
        for at, one in enumerate(tokens, start=1)
    ]
    columns = ("position", "token", "probability", "likeliest")
    output.result(document, columns, rows, as_json=args.json, title=f"{args.model} at {place.url}")


async def _tokens(args: argparse.Namespace, place: ServedEndpoint) -> list[Chosen]:
    """The tokens of the answer.

    Raises:
        Failed: the answer is an error, or has no probabilities.
        CannotRun: there is no complete answer.
    """
    from corral.agent.hub_policy import printable
    from corral.contract import probabilities
    from corral.contract.reach import json_of
    from corral.smoke.endpoint import Endpoint, TransportError

    body = probabilities.question(args.model, args.prompt, tokens=args.tokens, top=args.top)
    try:
        async with Endpoint(place.root, api_key=place.api_key, trust=place.trust) as api, asyncio.timeout(args.timeout):
            reply = await api.request("/v1/chat/completions", body)
    except (TransportError, TimeoutError) as error:
        why = str(error) or f"not within {args.timeout:g} s"
        step = place.why or "corral status"
        raise CannotRun(f"{place.url} gave no complete answer: {why}.", next_step=step) from None
    if reply.status != 200:
        message = f"{args.model} gave no answer: HTTP {reply.status}, {printable(reply.body.decode(errors='replace'))}"
        raise Failed(message, next_step=place.why or f"corral why {args.model}")
    try:
        return probabilities.read(json_of(reply))
    except ValueError as error:
        message = f"{args.model} gave no probabilities: {error}."
        raise Failed(message, next_step="Name a model of llama-server: corral contract api") from None


def _share(one: Share) -> dict[str, object]:
    return {"token": one.text, "probability": one.probability}


def _alternative(one: Share) -> str:
    return f"{_quoted(one.text)} {_percent(one.probability)}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _percent(probability: float) -> str:
    return f"{probability:.2%}"
