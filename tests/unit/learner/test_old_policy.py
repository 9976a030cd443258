"""The rollout policy's schedule and which of its versions may train."""

import pytest
import torch

from learner.config import OldPolicyConfig
from learner.errors import UserError
from learner.old_policy import OldPolicies, blended, eta


@pytest.mark.parametrize(
    ("config", "steps", "expected"),
    [
        ({"slope": 0.0}, 500, 0.0),
        ({}, 0, 0.0),
        ({}, 10, 0.01),
        ({}, 5000, 0.95),
        ({"slope": 0.0075, "flat_steps": 75, "max": 0.999}, 75, 0.0),
        ({"slope": 0.0075, "flat_steps": 75, "max": 0.999}, 95, 0.15),
        ({"slope": 0.0075, "flat_steps": 75, "max": 0.999}, 9999, 0.999),
    ],
)
def test_schedules_in_use(config: dict[str, float], steps: int, expected: float) -> None:
    """PAPER 1."""
    assert eta(steps, OldPolicyConfig(**config)) == pytest.approx(expected, abs=1e-15)


def test_blending_is_exact_at_its_ends() -> None:
    old, new = {"a": torch.tensor([0.1, 1e-9, 3.0])}, {"a": torch.tensor([0.3, 7.0, -3.1])}
    assert torch.equal(blended(old, new, 0.0)["a"], new["a"])
    assert torch.equal(blended(old, new, 1.0)["a"], old["a"])
    for rate in (0.001, 0.3, 0.7, 0.95):
        assert torch.equal(blended(new, new, rate)["a"], new["a"])
        torch.testing.assert_close(blended(old, new, rate)["a"], rate * old["a"] + (1 - rate) * new["a"])


def versions(count: int, max_staleness: int) -> tuple[OldPolicies, list[str]]:
    policies = OldPolicies({"a": torch.tensor([0.0])}, max_staleness)
    hashes = [policies.current.hash]
    for number in range(1, count):
        assert policies.publish({"a": torch.tensor([float(number)])})
        hashes.append(policies.current.hash)
    return policies, hashes


@pytest.mark.parametrize("max_staleness", [0, 1, 2])
def test_only_the_last_versions_may_train(max_staleness: int) -> None:
    policies, hashes = versions(4, max_staleness)
    for version in range(4):
        if version >= 3 - max_staleness:
            assert float(policies.find(version, hashes[version]).tensors["a"]) == version
        else:
            with pytest.raises(UserError, match=rf"version {version} \({hashes[version][:12]}\) are too old"):
                policies.find(version, hashes[version])


def test_what_was_never_published_is_refused() -> None:
    policies, hashes = versions(2, 0)
    for version, policy_hash in ((1, "0" * 64), (2, hashes[1]), (-1, hashes[1])):
        with pytest.raises(UserError, match="never published: the learner keeps 1"):
            policies.find(version, policy_hash)


def test_the_same_tensors_are_no_new_version() -> None:
    policies, _ = versions(2, 0)
    assert not policies.publish({"a": torch.tensor([1.0])})
    assert policies.current.version == 1


def test_state_comes_back_and_is_checked() -> None:
    policies, hashes = versions(4, 1)
    fresh = OldPolicies({"a": torch.tensor([9.0])}, 1)
    fresh.load(policies.tensors(), policies.state())
    assert fresh.find(2, hashes[2]).tensors == policies.find(2, hashes[2]).tensors
    assert (fresh.current.version, fresh.current.hash) == (3, hashes[3])
    broken = {**policies.tensors(), "old.0": {"a": torch.tensor([5.0])}}
    with pytest.raises(UserError, match="old policy 2 has hash"):
        fresh.load(broken, policies.state())
