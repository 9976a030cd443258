"""A request's body: read within limits of size and time, then taken apart. What is wrong has a status and one line."""

import asyncio
from dataclasses import dataclass

import numpy as np
from fastapi import HTTPException, Request
from numpy.typing import NDArray
from starlette.datastructures import FormData, UploadFile
from starlette.types import Message, Receive

from rewards.wire import NPY_PART, PNG_PART, REQUEST_PART, Question, decode_npy, decode_pngs, decode_question

MAX_IMAGES = 4096
"""PNG files in one request; each costs a temporary file object."""
MAX_FIELDS = 4
"""The contract has one; forms may carry a few of their own."""


@dataclass(frozen=True)
class Batch:
    """N samples to score."""

    question: Question
    images_NHWC: NDArray[np.uint8]


async def read_batch(request: Request, max_bytes: int, limit_s: float) -> Batch:
    """The samples of a request.

    Args:
        max_bytes: of the body, and of the images once decoded.
        limit_s: for the body to arrive; a client that stops in the middle keeps its place in the line no longer.

    Raises:
        HTTPException: 408 too slow, 413 too large, 415 no form, 400 a broken form, 422 what stands in it.
        ClientDisconnect: nobody is there any more.
    """
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != "multipart/form-data":
        raise HTTPException(415, "the body must be multipart/form-data")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        raise HTTPException(413, f"the body has {declared} bytes, at most {max_bytes} are taken")
    limited = Request(request.scope, _limited(request.receive, max_bytes))
    try:
        async with asyncio.timeout(limit_s):
            form = await limited.form(max_files=MAX_IMAGES, max_fields=MAX_FIELDS, max_part_size=max_bytes)
    except TimeoutError as error:
        raise HTTPException(408, f"the body did not arrive within {limit_s:g} s") from error
    try:
        return await _taken_apart(form, max_bytes)
    except ValueError as error:
        raise HTTPException(422, " ".join(str(error).split())) from error
    finally:
        await limited.close()


def _limited(receive: Receive, max_bytes: int) -> Receive:
    """Counts what arrives: a body need not say how long it is, and need not keep to what it said."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > max_bytes:
            raise HTTPException(413, f"the body has more than the {max_bytes} bytes that are taken")
        return message

    return counted


async def _taken_apart(form: FormData, max_bytes: int) -> Batch:
    question_part = form.get(REQUEST_PART)
    if question_part is None:
        raise ValueError(f"the form has no part {REQUEST_PART!r}")
    # curl and others send it as a file when they are given one.
    text = await question_part.read() if isinstance(question_part, UploadFile) else question_part.encode()
    question = decode_question(text)
    files = {
        name: [part for part in form.getlist(name) if isinstance(part, UploadFile)] for name in (NPY_PART, PNG_PART)
    }
    contents = {name: [await part.read() for part in parts] for name, parts in files.items()}
    # Pictures are decoded beside the event loop, which answers /healthz meanwhile.
    images = await asyncio.to_thread(_images, contents[NPY_PART], contents[PNG_PART], max_bytes)
    if len(images) != len(question.prompts):
        raise ValueError(f"{len(question.prompts)} prompts but {len(images)} images")
    return Batch(question, images)


def _images(npy: list[bytes], pngs: list[bytes], max_bytes: int) -> NDArray[np.uint8]:
    if len(npy) + bool(pngs) != 1:
        raise ValueError(
            f"images come as one file {NPY_PART!r} or as files {PNG_PART!r}, got {len(npy)} and {len(pngs)} of them"
        )
    return decode_npy(npy[0], max_bytes) if npy else decode_pngs(pngs, max_bytes)
