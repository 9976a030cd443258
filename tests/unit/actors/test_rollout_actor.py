"""The rollout actor without Ray. Rows 1, 6 and 20 of the faults table: pushes are proved, evaluation stands apart."""

import numpy as np
import pytest

from actors.config import RoleConfig
from actors.rollout import BASE_HASH, RolloutActor, RolloutSpec
from actors.tasks import make_tasks
from learner.adapters import hash_tensors
from learner.config import LoraConfig, PolicyConfig, SamplingConfig, SdeConfig
from learner.errors import UserError
from learner.types import AdapterState
from tests.unit.actors.stand_ins import prompts

SAMPLING = SamplingConfig(steps=3)
NUM_TENSORS = 12
"""to_q and to_v of two joint blocks, of which the first has two attentions: 6 layers, 2 matrices each."""
LORA = LoraConfig(rank=2, alpha=4, targets=("attn.to_q", "attn.to_v", "attn2.to_q", "attn2.to_v"))


@pytest.fixture(scope="module")
def actor(tmp_path_factory: pytest.TempPathFactory) -> RolloutActor:
    from tests.unit.learner.tiny_sd3 import save_tiny_sd3

    base = save_tiny_sd3(tmp_path_factory.mktemp("model") / "pipeline", seed=3)
    policy = PolicyConfig(base=str(base), resolution=32, max_sequence_length=0, lora=LORA)
    made = RolloutActor(RolloutSpec("rollout-0", RoleConfig(), policy, seed=1))
    assert made.start().role == "rollout"
    return made


def adapter(actor: RolloutActor, version: int, scale: float) -> AdapterState:
    """Tensors of the right names, filled with numbers of their own."""
    from learner import adapters

    shapes = {key: tuple(value.shape) for key, value in adapters.read(actor._policy.transformer, "old").items()}
    drawn = np.random.default_rng(version)
    tensors = {key: (scale * drawn.standard_normal(shape)).astype(np.float32) for key, shape in shapes.items()}
    for array in tensors.values():
        array.setflags(write=False)  # as they come out of the object store
    return AdapterState(tensors, version, hash_tensors(tensors))


TASK = make_tasks("train", 2, 7, prompts("cat", "cat", "cat"), 3)[0]


def test_row_1_a_push_answers_with_what_stands_in_the_module(actor: RolloutActor) -> None:
    state = adapter(actor, 5, 0.5)
    loaded = actor.load_adapter("old", state, NUM_TENSORS)
    assert (loaded.policy_version, loaded.policy_hash, loaded.num_tensors) == (5, state.hash, NUM_TENSORS)


def test_row_1_the_pushed_adapter_draws_and_its_batch_says_so(actor: RolloutActor) -> None:
    drawn = []
    for version in (5, 6):
        state = adapter(actor, version, 0.5)
        actor.load_adapter("old", state, NUM_TENSORS)
        images, latents, meta = actor.sample(TASK, SAMPLING, "old")
        assert latents is not None
        assert (meta.policy_version, meta.policy_hash) == (version, state.hash)
        assert (latents.policy_version, latents.policy_hash) == (version, state.hash)
        assert images.shape == (3, 32, 32, 3)
        drawn.append(latents.x0_NChw)
    assert not np.array_equal(drawn[0], drawn[1])


def test_row_1_another_hash_is_refused(actor: RolloutActor) -> None:
    state = adapter(actor, 5, 0.5)
    with pytest.raises(UserError, match=r"rollout-0: adapter old reads back as .*, pushed was 0123"):
        actor.load_adapter("old", AdapterState(state.tensors, 5, "0123"), NUM_TENSORS)


def test_row_1_another_number_of_tensors_is_refused(actor: RolloutActor) -> None:
    state = adapter(actor, 5, 0.5)
    with pytest.raises(
        UserError, match="bound 12 LoRA tensors; the learner trains 96 and 6 target modules here take 12"
    ):
        actor.load_adapter("old", state, 96)
    with pytest.raises(UserError, match="matched 0 of 12 expected"):
        actor.load_adapter("old", AdapterState({}, 5, "none"), NUM_TENSORS)


def test_row_1_a_wrong_prefix_names_matched_and_expected(actor: RolloutActor) -> None:
    state = adapter(actor, 5, 0.5)
    prefixed = {f"base_model.{key}": value for key, value in state.tensors.items()}
    with pytest.raises(UserError, match="matched 0 of 12 expected tensors, got 12"):
        actor.load_adapter("old", AdapterState(prefixed, 5, hash_tensors(prefixed)), NUM_TENSORS)


def test_row_6_evaluation_draws_with_its_own_adapter_or_none_and_leaves_old_alone(actor: RolloutActor) -> None:
    actor.load_adapter("old", adapter(actor, 5, 0.5), NUM_TENSORS)
    before, _, _ = actor.sample(TASK, SAMPLING, "old")
    actor.load_adapter("eval", adapter(actor, 9, 1.0), NUM_TENSORS)
    task = make_tasks("eval", 0, 7, prompts("cat", "dog"), 2)[0]
    heldout, latents, meta = actor.sample(task, SAMPLING, "eval", keep=(1,))
    base, _, base_meta = actor.sample(task, SAMPLING, None)
    assert latents is None, "nobody trains on held-out prompts"
    assert np.array_equal(meta.kept[0], heldout[1])
    assert base_meta.policy_hash == BASE_HASH
    assert not np.array_equal(heldout, base)
    after, _, _ = actor.sample(TASK, SAMPLING, "old")
    assert np.array_equal(before, after)


def test_row_20_samples_of_a_group_differ_and_come_again(actor: RolloutActor) -> None:
    actor.load_adapter("old", adapter(actor, 5, 0.5), NUM_TENSORS)
    _, one, meta = actor.sample(TASK, SAMPLING, "old")
    _, again, _ = actor.sample(TASK, SAMPLING, "old")
    assert one is not None
    assert again is not None
    assert np.array_equal(one.x0_NChw, again.x0_NChw)
    assert len({x.tobytes() for x in one.x0_NChw}) == 3
    assert len(set(meta.seeds_N.tolist())) == 3


def test_vitals_are_of_this_process(actor: RolloutActor) -> None:
    vitals = actor.vitals()
    assert vitals.peak_memory_gib > 0.1
    assert vitals.start_s > 0


def test_under_an_sde_the_latents_bring_their_trajectory(actor: RolloutActor) -> None:
    """Flow-GRPO: 4 bytes for each element of W + 1 latents, and for each of W densities; evaluation has neither."""
    actor.load_adapter("old", adapter(actor, 5, 0.5), NUM_TENSORS)
    sampling = SamplingConfig(steps=6, sde=SdeConfig(window=2))
    images, latents, _ = actor.sample(TASK, sampling, "old")
    again, same, _ = actor.sample(TASK, sampling, "old")
    assert latents is not None
    assert same is not None
    trajectory = latents.trajectory
    assert trajectory is not None
    assert trajectory.x_NWChw.nbytes == 3 * 3 * latents.x0_NChw[0].nbytes
    assert trajectory.log_densities_NW.nbytes == 3 * 2 * 4
    assert np.array_equal(images, again)
    assert same.trajectory is not None
    assert np.array_equal(trajectory.x_NWChw, same.trajectory.x_NWChw)
    plain = actor.sample(TASK, SAMPLING, "old")[1]
    assert plain is not None
    assert plain.trajectory is None
