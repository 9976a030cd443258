"""A reward that lives behind HTTP: on another machine, in another cluster, in another language (docs/http_rewards.md).

Whatever goes wrong on the way is a failed cell with the address and the reason, never a number.

Letters: N samples in the batch.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rewards.config import HttpArgs
from rewards.contract import Metadata, RewardResult
from rewards.http_call import Call, CallError, RefusedError, UnreachableError, read_token, send
from rewards.images import check_batch
from rewards.results import Cell, collect, from_scores
from rewards.retrying import Backoff
from rewards.wire import Info, Part, decode_answer, decode_info, encode_request

START_LIMIT_S = 20.0
"""For the first question. With the self-test's score, whose limit is timeout_s (30 s by default), a server that is down
or hangs is known within a minute."""


class HttpScorer:
    """Asks a reward server. It keeps nothing between calls, so any number of threads may share it.

    A batch is one request of the same samples in the same order: scores are those that the server's own scorer gives to
    this batch, to the bit.
    """

    def __init__(self, args: HttpArgs) -> None:
        """Ask the server what it serves.

        Raises:
            ConnectionError: it cannot be reached, or does not answer in time.
            ValueError: it refuses, is no reward server of this protocol, or serves another reward or image format than
                args want; or the token's variable is not set.
        """
        self.args = args
        token = read_token(args.token_env)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.info = self._ask_info()
        if args.reward is not None and self.info.reward != args.reward:
            raise ValueError(f"{args.url} serves {self.info.reward!r}, not {args.reward!r}")
        if args.images not in self.info.images:
            raise ValueError(f"{args.url} takes images as {' or '.join(self.info.images)}, not as {args.images}")

    def __call__(
        self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        """Training scores of N images (uint8 [N, H, W, 3]).

        Raises:
            ValueError, TypeError: a batch that is not as rewards.images.check_batch wants it, or that JSON cannot hold.
            RefusedError: the server does not take several samples together; it may take some of them.
        """
        return self._score(images_NHWC, prompts, metadata, evaluation=False)

    def score_for_evaluation(
        self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        """As a call, for the figure that the served reward reports."""
        return self._score(images_NHWC, prompts, metadata, evaluation=True)

    def self_test_metadata(self) -> Metadata:
        """What the server gave for it."""
        return self.info.self_test_metadata

    def _score(
        self,
        images_NHWC: NDArray[np.uint8],
        prompts: Sequence[str],
        metadata: Sequence[Metadata],
        evaluation: bool,
    ) -> RewardResult:
        images = check_batch(images_NHWC, prompts, metadata)
        if len(images) == 0:
            return from_scores([])
        parts = encode_request(images, prompts, metadata, evaluation, self.args.images)
        url = f"{self.args.url}/v1/score"
        try:
            self._check_size(images, parts)
            return decode_answer(send(self._call("POST", url, self.args.timeout_s, parts)), len(images))
        except (CallError, ValueError) as error:
            if isinstance(error, RefusedError) and len(images) > 1:
                # Raised, so that rewards.safe looks for the samples at fault.
                raise RefusedError(f"{url}: {error}") from error
            return collect([Cell.failed(f"{url}: {error}")] * len(images))

    def _check_size(self, images: NDArray[np.uint8], parts: Sequence[Part]) -> None:
        limit, size = self.info.max_request_bytes, max(images.nbytes, sum(len(part[1][1]) for part in parts))
        if limit is not None and size > limit:
            raise ValueError(
                f"{len(images)} images are {size} bytes, the server takes {limit}; lower the pool's batch_size"
            )

    def _ask_info(self) -> Info:
        url = f"{self.args.url}/v1/info"
        try:
            return decode_info(send(self._call("GET", url, min(START_LIMIT_S, self.args.timeout_s))))
        except UnreachableError as error:
            raise ConnectionError(f"{url}: {error}") from error
        except (CallError, ValueError) as error:
            raise ValueError(f"{url}: {error}") from error

    def _call(self, method: str, url: str, limit_s: float, parts: Sequence[Part] = ()) -> Call:
        backoff = Backoff(retries=self.args.retries)
        return Call(method, url, limit_s, self.args.connect_timeout_s, backoff, self._headers, parts)
