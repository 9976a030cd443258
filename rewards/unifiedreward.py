"""UnifiedReward (Wang et al. 2025, arXiv 2503.05236): a vision-language model is asked for a score from 1 to 5.

It is too large to live beside the others, so it stays behind an OpenAI-compatible server (vLLM, SGLang). Each image is
one request, a bounded number of them at once; whatever goes wrong with one is a failed cell with address and reason.

Letters: N samples.
"""

import base64
import io
import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rewards.contract import Metadata, RewardResult
from rewards.http_call import Call, CallError, UnreachableError, read_token, send
from rewards.images import check_batch
from rewards.results import Cell, collect
from rewards.retrying import Backoff
from rewards.scorer_args import UnifiedrewardArgs
from rewards.wire import excerpt

HIGHEST = 5.0
"""Score of a perfect image; the reward is the score over this (PAPER 4)."""

QUESTION = (
    "<image>\n"
    "You are given a text caption and a generated image based on that caption. Your task is to evaluate this image "
    "based on two key criteria:\n"
    "1. Alignment with the Caption: Assess how well this image aligns with the provided caption. Consider the accuracy "
    "of depicted objects, their relationships, and attributes as described in the caption.\n"
    "2. Overall Image Quality: Examine the visual quality of this image, including clarity, detail preservation, color "
    "accuracy, and overall aesthetic appeal.\n"
    "Based on the above criteria, assign a score from 1 to 5 after 'Final Score:'.\n"
    "Your task is provided as follows:\n"
    "Text Caption: [{prompt}]"
)
"""The instruction that the model was trained on and the public recipes ask with. It is part of the model as a tokenizer
is: to another wording it answers with other scores."""

_SCORE = re.compile(r"Final Score:\s*(-?\d+(?:\.\d+)?)")


def parse_score(answer: str) -> float:
    """The number behind the first `Final Score:` of an answer.

    Raises:
        ValueError: there is none, or it is not between 1 and 5; quotes the answer.
    """
    found = _SCORE.search(answer)
    if found is None:
        raise ValueError(f"no 'Final Score:' with a number in the answer {excerpt(answer.encode())}")
    score = float(found.group(1))
    if not 1.0 <= score <= HIGHEST:
        raise ValueError(f"a score of {found.group(1)}, not from 1 to 5, in the answer {excerpt(answer.encode())}")
    return score


def unified_reward(score: float) -> float:
    """The reward, in [0.2, 1]: the score from 1 to 5 over 5."""
    return score / HIGHEST


class UnifiedrewardScorer:
    """UnifiedReward of images against their prompts. It keeps nothing between calls, so threads may share it."""

    score_range = (1.0 / HIGHEST, 1.0)

    def __init__(self, args: UnifiedrewardArgs) -> None:
        """Nothing is asked yet; the self-test is the first to.

        Raises:
            ValueError: the key's environment variable is not set.
        """
        self.args = args
        self._url = f"{args.base_url}/chat/completions"
        token = read_token(args.token_env)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def __call__(
        self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        """Score N images (uint8 [N, H, W, 3]) against their prompts; metadata is not used.

        Raises:
            ValueError: a batch that is not as rewards.images.check_batch wants it.
            ConnectionError: not one of the images could be asked about; says the address and the last reason.
        """
        images = check_batch(images_NHWC, prompts, metadata)
        with ThreadPoolExecutor(self.args.concurrency, "unifiedreward") as threads:
            answers = list(threads.map(self._ask, images, prompts))
        away = [answer for answer in answers if isinstance(answer, UnreachableError)]
        if away and len(away) == len(answers):
            # The scorer is gone, not a sample: nobody gains from halving the batch.
            raise ConnectionError(f"{self._url}: {away[-1]}")
        return collect([self._cell(answer) for answer in answers])

    def _ask(self, image_HWC: NDArray[np.uint8], prompt: str) -> str | CallError:
        args, question = self.args, json.dumps(self._request(image_HWC, prompt)).encode()
        backoff = Backoff(retries=args.retries)
        call = Call("POST", self._url, args.timeout_s, args.connect_timeout_s, backoff, self._headers, json=question)
        try:
            return content_of(send(call))
        except CallError as error:
            return error

    def _cell(self, answer: str | CallError) -> Cell:
        try:
            if isinstance(answer, CallError):
                raise answer
            return Cell.scored(unified_reward(parse_score(answer)))
        except (CallError, ValueError) as error:
            return Cell.failed(f"{self._url}: {error}")

    def _request(self, image_HWC: NDArray[np.uint8], prompt: str) -> dict[str, Any]:
        # Not format(): captions and questions may have braces of their own.
        text = (self.args.question or QUESTION).replace("{prompt}", prompt)
        image = {"type": "image_url", "image_url": {"url": data_url(image_HWC, self.args.image_side)}}
        content = [image, {"type": "text", "text": text}]
        messages = [{"role": "user", "content": content}]
        # Temperature 0: the likeliest answer, the same every time.
        return {"model": self.args.model, "messages": messages, "temperature": 0, "max_tokens": self.args.max_tokens}


def content_of(body: bytes) -> str:
    """The text of the first choice of a chat completion.

    Raises:
        CallError: the body is no chat completion, or has no text.
    """
    try:
        content = json.loads(body)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise CallError(f"the answer is no chat completion ({error!r}): {excerpt(body)}") from error
    if not isinstance(content, str):
        raise CallError(f"the chat completion has no text: {excerpt(body)}")
    return content


def data_url(image_HWC: NDArray[np.uint8], side: int | None) -> str:
    """One image (uint8 [H, W, 3]) as a PNG in a data URL, resized to a square of that side unless None."""
    picture = Image.fromarray(image_HWC)
    if side is not None:
        picture = picture.resize((side, side), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
