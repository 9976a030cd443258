"""The policy: a frozen Stable Diffusion 3 base with adapters, seen as text → embeddings, (x, σ, text) → velocity,
latents → pixels.

Letters: N samples, C, h, w latent channels and size, H, W pixels, L text tokens, D their width, P pooled width.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from diffusers import StableDiffusion3Pipeline
from numpy.typing import NDArray
from torch import Tensor, nn

from learner import adapters
from learner.config import LoraConfig, PolicyConfig
from learner.errors import PolicyError
from learner.export import load_lora
from learner.loading import load_pipeline

TEXT_CACHE_SIZE = 512
"""Prompts whose embeddings are kept: an iteration has tens of them; of SD3.5 Medium one takes 1.7 MB in bfloat16."""


@dataclass(frozen=True)
class TextEmbeddings:
    """Prompts as the transformer reads them."""

    prompt_NLD: Tensor
    pooled_NP: Tensor

    def rows(self, indices_N: Tensor) -> "TextEmbeddings":
        """The same for these rows, in this order, repeats allowed."""
        return TextEmbeddings(self.prompt_NLD[indices_N], self.pooled_NP[indices_N])

    @staticmethod
    def cat(parts: Sequence["TextEmbeddings"]) -> "TextEmbeddings":
        """All rows, one part after the other."""
        return TextEmbeddings(
            torch.cat([part.prompt_NLD for part in parts]), torch.cat([part.pooled_NP for part in parts])
        )


class Policy:
    """A Stable Diffusion 3 base with LoRA adapters. Parts left out at loading are refused when used."""

    def __init__(self, pipeline: StableDiffusion3Pipeline, config: PolicyConfig, device: torch.device | str) -> None:
        """Wrap a loaded pipeline; :meth:`load` is what most callers want."""
        self.config = config
        self.device = torch.device(device)
        self._pipeline = pipeline.to(self.device)
        self.transformer: nn.Module = pipeline.transformer
        self.vae: nn.Module | None = pipeline.vae
        self.scheduler_config: Mapping[str, Any] = dict(pipeline.scheduler.config)
        self.dtype: torch.dtype = pipeline.transformer.dtype
        side = config.resolution // pipeline.vae_scale_factor
        self.latent_shape: tuple[int, int, int] = (pipeline.transformer.config.in_channels, side, side)
        self._texts: OrderedDict[str, TextEmbeddings] = OrderedDict()

    @classmethod
    def load(
        cls,
        config: PolicyConfig,
        adapter_names: Sequence[str],
        device: torch.device | str = "cpu",
        seed: int = 0,
        with_vae: bool = True,
        with_text: bool = True,
        whole_lora: bool = False,
    ) -> "Policy":
        """Load the base and attach adapters, all equal: fresh ones of this seed, or `config.init_lora`.

        Args:
            whole_lora: `init_lora` is what `config.lora` trained, to be drawn with: nothing of it may be missing.

        Raises:
            PolicyError: the base cannot be loaded, does not fit the resolution, or LoRA targets match nothing.
            UserError: `init_lora` cannot be read, or is no starting point for `config.lora`.
        """
        pipeline = load_pipeline(config, with_vae, with_text)
        _check_resolution(pipeline, config)
        policy = cls(pipeline, config, device)
        if adapter_names:
            adapters.attach(policy.transformer, config.lora, adapter_names, seed)
            if config.init_lora is not None:
                policy._start_from(config.init_lora, config.lora, adapter_names, whole_lora)
        return policy

    @torch.no_grad()
    def encode(self, prompts: Sequence[str]) -> TextEmbeddings:
        """Embeddings of N prompts by the pipeline's own `encode_prompt`, cached per text.

        Each text is encoded alone, so that what a prompt gives does not depend on its company or on the cache.
        """
        if self._pipeline.text_encoder is None:
            raise ValueError("this policy was loaded without text encoders")
        rows = []
        for prompt in prompts:
            if prompt not in self._texts:
                embedding, _, pooled, _ = self._pipeline.encode_prompt(
                    prompt=prompt,
                    prompt_2=None,
                    prompt_3=None,
                    device=self.device,
                    do_classifier_free_guidance=False,
                    max_sequence_length=self.config.max_sequence_length,
                )
                self._texts[prompt] = TextEmbeddings(embedding, pooled)
            self._texts.move_to_end(prompt)
            rows.append(self._texts[prompt])
        while len(self._texts) > TEXT_CACHE_SIZE:
            self._texts.popitem(last=False)
        return TextEmbeddings.cat(rows)

    def velocity(
        self, x_NChw: Tensor, sigma_N: Tensor, text: TextEmbeddings, module: Callable[..., Any] | None = None
    ) -> Tensor:
        """[N, C, h, w] float32 velocity of the active adapter.

        Args:
            x_NChw: noisy latents.
            sigma_N: noise levels in (0, 1]; the model's timestep is σ times the scheduler's number of steps.
            text: one row per sample.
            module: what to call in place of the transformer, e.g. its DDP wrapper.
        """
        velocity: Tensor = (module or self.transformer)(
            hidden_states=x_NChw.to(self.dtype),
            timestep=sigma_N * self.scheduler_config["num_train_timesteps"],
            encoder_hidden_states=text.prompt_NLD,
            pooled_projections=text.pooled_NP,
            return_dict=False,
        )[0]
        return velocity.float()

    @torch.no_grad()
    def decode_float(self, x0_NChw: Tensor) -> Tensor:
        """[N, 3, H, W] float32 images in [0, 1], before quantisation."""
        if self.vae is None:
            raise ValueError("this policy was loaded without its VAE")
        vae: Any = self.vae
        latents = (x0_NChw / vae.config.scaling_factor) + vae.config.shift_factor
        decoded: Tensor = vae.decode(latents.to(vae.dtype), return_dict=False)[0]
        return (decoded.float() * 0.5 + 0.5).clamp(0, 1)

    def decode(self, x0_NChw: Tensor) -> NDArray[np.uint8]:
        """[N, H, W, 3] images.

        Raises:
            ValueError: latents that are not finite.
        """
        return to_uint8(self.decode_float(x0_NChw))

    def pipeline(self) -> StableDiffusion3Pipeline:
        """diffusers' own pipeline around the same modules, adapters included."""
        return self._pipeline

    def _start_from(self, path: str, lora: LoraConfig, adapter_names: Sequence[str], whole: bool) -> None:
        loaded, fresh = load_lora(path), adapters.read(self.transformer, adapter_names[0])
        missing = sorted(fresh.keys() - loaded.tensors.keys())
        if whole and missing:
            raise PolicyError(
                f"policy.init_lora: {path} lacks {len(missing)} of {len(fresh)} tensors, first {missing[0]}"
            )
        try:
            tensors = adapters.continued(loaded, fresh, lora)
        except PolicyError as error:
            raise PolicyError(f"policy.init_lora: {path} {error}") from error
        for name in adapter_names:
            adapters.write(self.transformer, name, tensors)


def to_uint8(images_N3HW: Tensor) -> NDArray[np.uint8]:
    """[N, H, W, 3] bytes of images in [0, 1], rounded: the one place where pixels are quantised.

    Raises:
        ValueError: a value outside [0, 1] or not finite, with the count and the range.
    """
    good = (images_N3HW >= 0) & (images_N3HW <= 1)
    if not bool(good.all()):
        raise ValueError(
            f"{int((~good).sum())} of {good.numel()} pixel values are not in [0, 1]: "
            f"min {float(images_N3HW.min())}, max {float(images_N3HW.max())}"
        )
    pixels: NDArray[np.uint8] = (images_N3HW.permute(0, 2, 3, 1) * 255).round().to(torch.uint8).cpu().numpy()
    return np.ascontiguousarray(pixels)


def _check_resolution(pipeline: StableDiffusion3Pipeline, config: PolicyConfig) -> None:
    step = pipeline.vae_scale_factor * pipeline.transformer.config.patch_size
    if config.resolution % step:
        raise PolicyError(
            f"policy.resolution: {config.resolution} is not a multiple of {step}, which {config.base} needs"
        )
    side, largest = config.resolution // step, pipeline.transformer.config.pos_embed_max_size
    if side > largest:
        raise PolicyError(
            f"policy.resolution: {config.resolution} is more than {config.base} has positions for, {largest * step}"
        )
