"""What passes through the controller is counted, and the driver stays light. Row 28 of the faults table."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import ray
import ray.exceptions

from actors.local_ray import MAX_STORE_SHARE, new_identity, store_bytes
from actors.process import INLINE_BYTES, actor_options
from actors.remote import REF_BYTES, ActorLostError, CallFailedError, RayRemote, detached, one_line, size_of, why_gone
from learner.errors import UserError
from tests.unit.actors.stand_ins import recipe


def test_values_count_by_their_bytes_and_references_by_their_id() -> None:
    assert size_of(None) == size_of(()) == 0
    assert 80_000 < size_of(np.zeros(10_000)) < 80_500
    assert size_of((ray.ObjectRef.nil(),)) < REF_BYTES + 100


def test_row_31_what_the_driver_gets_does_not_hold_on_to_the_object_store() -> None:
    pinned = np.arange(5.0)
    pinned.setflags(write=False)
    (copy, text), size = detached((pinned, "text"))
    np.testing.assert_array_equal(copy, pinned)
    assert copy.base is None or copy.base is not pinned
    assert not np.shares_memory(copy, pinned)
    assert text == "text"
    assert size == size_of((pinned, "text"))


def test_errors_are_one_line_and_users_errors_their_text() -> None:
    assert one_line(UserError("no\n  such file")) == "no such file"
    assert one_line(KeyError("x")) == "KeyError: 'x'"
    assert one_line(RuntimeError()) == "RuntimeError"


def test_a_lost_process_is_told_without_ids_and_advice() -> None:
    """As Ray 2.60 words it."""
    said = (
        "The actor died unexpectedly before finishing this task.\n\tclass_name: ScorerActor\n\tactor_id: db3e610a\n\t"
        "pid: 1285\n\tname: tiny/reward.ocr-0\n\tnamespace: marble\n\tip: 192.0.2.2\nThe actor is dead because its "
        "worker process has died. Worker exit detail: End of file. Some common causes include: (1) the OOM killer."
    )
    assert why_gone(RuntimeError(said)) == (
        "RuntimeError: The actor died unexpectedly before finishing this task. The actor is dead because its worker "
        "process has died. Worker exit detail: End of file."
    )
    assert why_gone(RuntimeError("node is unreachable")) == "RuntimeError: node is unreachable"


def test_row_28_the_driver_loads_neither_torch_nor_models() -> None:
    code = (
        "import sys, actors.controller, actors.local_ray, actors.preflight\n"
        "print([m for m in ('torch', 'diffusers', 'transformers', 'cvxpy') if m in sys.modules])"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


GONE = [
    ray.exceptions.ActorDiedError(),
    ray.exceptions.ActorUnavailableError("no answer", None),
    ray.exceptions.WorkerCrashedError(),
    ray.exceptions.OutOfMemoryError("task was killed due to the node running low on memory"),
    ray.exceptions.NodeDiedError("node is unreachable"),
    ray.exceptions.LocalRayletDiedError(),
]


@pytest.mark.parametrize("error", GONE, ids=lambda error: type(error).__name__)
def test_row_14_whatever_took_a_process_away_it_is_lost(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead replica that is not replaced fails every call at once, and so gets most of them."""

    def get(ref: object, timeout: float) -> None:
        raise error

    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(ActorLostError):
        RayRemote().get(ray.ObjectRef.nil(), 1.0)


def test_what_a_live_process_raises_is_a_failed_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(ref: object, timeout: float) -> None:
        raise ray.exceptions.RayTaskError("score", "traceback", OSError("disk full"))

    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(CallFailedError, match=r"^OSError: disk full$"):
        RayRemote().get(ray.ObjectRef.nil(), 1.0)


def test_an_actor_asks_for_what_its_role_says_and_gets_its_threads() -> None:
    config = recipe(actors={"rollout": {"num_cpus": 0.5, "threads": 3, "resources": {"h200": 1}}})
    options = actor_options(config.actors.rollout, "run/rollout-0", "marble-run")
    assert (options["num_cpus"], options["num_gpus"], options["resources"]) == (0.5, 0.0, {"h200": 1})
    variables = options["runtime_env"]["env_vars"]
    assert variables["OMP_NUM_THREADS"] == "3"
    assert variables["RAY_max_direct_call_object_size"] == str(INLINE_BYTES)
    assert (options["name"], options["namespace"]) == ("run/rollout-0", "marble-run")


def test_a_run_has_an_id_of_its_own_in_namespace_and_names() -> None:
    one, other = new_identity("tiny"), new_identity("tiny")
    assert one.run_id != other.run_id
    assert one.namespace == f"marble-{one.run_id}"
    assert one.actor_name("rollout-0") == f"{one.run_id}/rollout-0"


def test_the_object_store_grows_with_the_run_up_to_rays_usual_share() -> None:
    small = store_bytes(recipe(policy={"base": "b", "resolution": 64}))
    large = store_bytes(recipe(policy={"base": "b", "resolution": 512}))
    huge = store_bytes(recipe(policy={"base": "b", "resolution": 4096}, prompts={"group_size": 2000}))
    assert 2**27 < small < large < huge
    import os

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert huge <= MAX_STORE_SHARE * memory
