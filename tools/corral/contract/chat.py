"""OpenAI's SDK: chat, streams, probabilities, and what stands beside them."""

from __future__ import annotations

from corral.contract import probabilities
from corral.contract.check import check, require
from corral.contract.reach import Way

QUESTION = "What is 2+2?"
TOKENS = 12
"""Enough for any answer that is judged here."""


def messages(text: str = QUESTION) -> list[dict[str, object]]:
    """A chat of one question."""
    return [{"role": "user", "content": text}]


def _chat(way: Way, **more: object) -> dict[str, object]:
    return {"model": way.model, "messages": messages(), "max_tokens": TOKENS, "temperature": 0, **more}


@check()
async def models(way: Way) -> None:
    """`models.list()` has the model by its id."""
    listed = [one.id async for one in way.openai.models.list()]
    require(way.model in listed, "the id is not in the list")


@check()
async def chat(way: Way) -> None:
    """`chat.completions.create()`: an answer with `finish_reason`, the model's id, and tokens that add up."""
    answer = await way.openai.chat.completions.create(**_chat(way))
    (choice,) = answer.choices
    require(choice.message.role == "assistant" and choice.message.content.strip(), "no content")
    require(choice.finish_reason in ("stop", "length"), "no usual finish_reason")
    require(answer.model == way.model, "another model's name")
    usage = answer.usage
    require(usage and usage.completion_tokens > 0 and usage.prompt_tokens > 0, "no usage")
    require(usage.prompt_tokens + usage.completion_tokens == usage.total_tokens, "the tokens do not add up")


@check()
async def max_tokens(way: Way) -> None:
    """`max_tokens`: exactly so many, and `finish_reason` is `length`."""
    answer = await way.openai.chat.completions.create(**_chat(way, max_tokens=1))
    require(answer.usage and answer.usage.completion_tokens == 1, "another number of tokens")
    require(answer.choices[0].finish_reason == "length", "another finish_reason")


@check()
async def stop(way: Way) -> None:
    """`stop`: the answer ends before these words."""
    whole = await way.openai.chat.completions.create(**_chat(way))
    content = whole.choices[0].message.content
    word = content.strip()[1:3]  # of the middle of what it answers
    cut = await way.openai.chat.completions.create(**_chat(way, stop=[word]))
    require(word and word not in cut.choices[0].message.content, "the words are in the answer")
    require(cut.choices[0].finish_reason == "stop", "another finish_reason")


@check()
async def choices(way: Way) -> None:
    """`n=2`: two answers to one question."""
    answer = await way.openai.chat.completions.create(**_chat(way, n=2, max_tokens=2))
    require(len(answer.choices) == 2, f"{len(answer.choices)} answers")


@check()
async def stream(way: Way) -> None:
    """`stream=True`: pieces, one `finish_reason` at the end, and no usage that was not asked for."""
    stream = await way.openai.chat.completions.create(**_chat(way, stream=True))
    reasons: list[str] = []
    text, usages = "", 0
    async for piece in stream:
        usages += piece.usage is not None
        for choice in piece.choices:
            require(not reasons or not choice.delta.content, "content after finish_reason")
            text += choice.delta.content or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
    require(text.strip(), "no content")
    require(len(reasons) == 1, f"{len(reasons)} times a finish_reason")
    require(not usages, "usage without being asked for")


@check()
async def stream_usage(way: Way) -> None:
    """`stream_options.include_usage`: a last piece with the tokens and no choice."""
    more = {"stream": True, "stream_options": {"include_usage": True}}
    stream = await way.openai.chat.completions.create(**_chat(way, **more))
    pieces = [piece async for piece in stream]
    require(pieces and pieces[-1].usage, "no usage in the last piece")
    require(not pieces[-1].choices, "the last piece has a choice")
    require(pieces[-1].usage.completion_tokens > 0, "no tokens in it")


@check()
async def logprobs(way: Way) -> None:
    """`logprobs`, `top_logprobs`: sorted, at most 1 in sum, and the likeliest token is the greedy one."""
    question = probabilities.question(way.model, QUESTION, tokens=4, top=5)
    answer = await way.openai.chat.completions.create(**question)
    require(answer.choices[0].logprobs, "no logprobs")
    tokens = probabilities.read(answer.model_dump())
    require(len(tokens) == answer.usage.completion_tokens, "not one for each token")
    for token in tokens:
        shares = [one.probability for one in token.top]
        require(len(shares) == 5, "not so many alternatives")
        require(shares == sorted(shares, reverse=True), "they are not sorted")
        require(sum(shares) <= 1 + 1e-3, "more than 1 in sum")
        require(token.top[0].text == token.text, "another token than the likeliest at temperature 0")


@check(of="thinking")
async def reasoning(way: Way) -> None:
    """A thinking model: its thoughts are in `reasoning_content`, and not in `content`."""
    answer = await way.openai.chat.completions.create(**_chat(way, max_tokens=2048))
    message = answer.choices[0].message
    require((message.content or "").strip(), "no content")
    require("<think>" not in message.content, "the thoughts are in the content")
    require((getattr(message, "reasoning_content", "") or "").strip(), "no reasoning_content")


@check(of="thinking")
async def reasoning_cut(way: Way) -> None:
    """A thinking model with too few `max_tokens`: there is content, or an error."""
    answer = await way.openai.chat.completions.create(**_chat(way, max_tokens=2))
    found = f"HTTP 200, empty content, `finish_reason` {answer.choices[0].finish_reason}"
    require((answer.choices[0].message.content or "").strip(), found)


@check()
async def completions(way: Way) -> None:
    """`completions.create()`: text that goes on from a prompt."""
    answer = await way.openai.completions.create(model=way.model, prompt="One, two,", max_tokens=4, temperature=0)
    require(answer.choices[0].text.strip(), "no text")
    require(answer.choices[0].finish_reason in ("stop", "length"), "no usual finish_reason")


@check()
async def responses(way: Way) -> None:
    """`responses.create()`: `output_text`, with the status `completed`."""
    answer = await way.openai.responses.create(
        model=way.model, input=QUESTION, max_output_tokens=TOKENS, temperature=0, store=False
    )
    require(answer.output_text.strip(), "no output_text")
    require(answer.status == "completed", "another status")
    require(answer.usage and answer.usage.output_tokens > 0, "no usage")


@check()
async def embeddings(way: Way) -> None:
    """`embeddings.create()` of a chat model: a vector."""
    answer = await way.openai.embeddings.create(model=way.model, input="A card.", encoding_format="float")
    require(any(answer.data[0].embedding), "an empty vector")
