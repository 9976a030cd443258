"""Starting a local Ray or joining one, as far as it can be seen without either."""

from typing import Any

import pytest
import ray

from actors import local_ray
from learner.errors import UserError
from tests.unit.actors.stand_ins import recipe


class Asked:
    """Stands in for ray.init: keeps what it was asked for, or fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.options: dict[str, Any] = {}
        self.error = error
        self.shut_down = 0
        monkeypatch.setattr(ray, "init", self.init)
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        monkeypatch.setattr(ray, "shutdown", self.shutdown)
        for name in ("RAY_ADDRESS", local_ray.JOB_VARIABLE, local_ray.WORKER_LOGS_VARIABLE, *local_ray.LOCAL_VARIABLES):
            monkeypatch.delenv(name, raising=False)

    def init(self, **options: Any) -> None:
        self.options = options
        if self.error is not None:
            raise self.error

    def shutdown(self) -> None:
        self.shut_down += 1


def test_without_an_address_a_local_ray_is_started_and_ends_with_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    with local_ray.connected(recipe()):
        assert asked.shut_down == 0
    assert asked.options["address"] == "local"
    assert asked.options["num_cpus"] >= local_ray.MIN_CPUS
    assert asked.shut_down == 1


def test_an_address_is_joined_and_the_clone_shipped_without_runs_and_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    with local_ray.connected(recipe(), "auto"):
        pass
    assert asked.options["address"] == "auto"
    assert "num_cpus" not in asked.options
    assert asked.options["runtime_env"]["working_dir"] == str(local_ray.ROOT)
    assert {"runs", "cache", ".venv"} <= set(asked.options["runtime_env"]["excludes"])


@pytest.mark.parametrize("variable", ["RAY_ADDRESS", local_ray.JOB_VARIABLE])
def test_inside_a_cluster_it_is_joined_with_the_jobs_own_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    asked = Asked(monkeypatch)
    monkeypatch.setenv(variable, "{}")
    with local_ray.connected(recipe()):
        pass
    assert asked.options["address"] == "auto"
    assert asked.options["runtime_env"] is None


def test_authentication_is_left_to_the_user_and_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any("AUTH" in name for name in local_ray.LOCAL_VARIABLES)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    asked = Asked(monkeypatch)
    with local_ray.connected(recipe()):
        import os

        assert os.environ["RAY_AUTH_MODE"] == "token"
    assert "_system_config" not in asked.options


def test_no_cluster_at_the_address_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    Asked(monkeypatch, ConnectionError("Failed to connect\nmore"))
    with (
        pytest.raises(UserError, match=r"--address 10\.0\.0\.9:6379: no Ray .* \(Failed to connect\)"),
        local_ray.connected(recipe(), "10.0.0.9:6379"),
    ):
        pass


def test_a_refused_token_is_told_from_a_cluster_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ConnectionError("Failed to connect")
    error.__cause__ = RuntimeError("RPC error: InvalidAuthToken: Authentication token is missing or incorrect")
    Asked(monkeypatch, error)
    with pytest.raises(UserError, match="set RAY_AUTH_MODE=token"), local_ray.connected(recipe(), "10.0.0.9:6379"):
        pass


def test_a_local_ray_that_does_not_come_up_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, Exception("The current node timed out"))
    with (
        pytest.raises(UserError, match=r"Ray could not be started on this machine: .*timed out"),
        local_ray.connected(recipe()),
    ):
        pass
    assert asked.shut_down == 1


def test_a_ray_that_is_there_already_is_used_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    with local_ray.connected(recipe(), "auto"):
        pass
    assert asked.options == {}
    assert asked.shut_down == 0
