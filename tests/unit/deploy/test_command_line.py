"""The command line itself: help, exit codes, and where errors go."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from deploy_helpers import Marble, problem

from deploy import cli, errors
from deploy.paths import ROOT
from learner.errors import UserError

COMMANDS = ("train", "check", "data", "eval", "generate", "status", "serve-reward")


def test_help_is_quick_and_names_every_command() -> None:
    """--help imports nothing heavy; a time limit would measure the machine."""
    code = (
        "import sys\nfrom deploy.cli import run\ncode = run(['--help'])\n"
        "print([m for m in ('torch', 'ray', 'numpy', 'pydantic', 'transformers', 'yaml') if m in sys.modules], code)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] 0"
    for command in COMMANDS:
        assert f" {command} " in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_help_text(command: str) -> None:
    parameters = typer.main.get_command(cli.app).commands[command].params  # type: ignore[attr-defined]
    assert [p.name for p in parameters if not getattr(p, "help", None)] == []


def test_no_arguments_show_the_help(marble: Marble) -> None:
    ran = marble()
    assert ran.code == 0
    assert "Usage" in ran.out


def test_completion_is_offered(marble: Marble) -> None:
    assert "--install-completion" in marble("--help").out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["trane"], "trane"),
        (["train"], "RECIPE"),
        (["train", "x.yaml", "--resum"], "--resum"),
        (["generate", "a", "--seed", "-1"], "--seed"),
        (["generate", "a", "--seed", "x"], "--seed"),
        (["generate", "a", "--steps", "0"], "--steps"),
    ],
)
def test_usage_errors_are_one_line(marble: Marble, args: list[str], says: str) -> None:
    problem(marble(*args), says, "--help")


def test_a_recipe_that_is_not_there(marble: Marble, workdir: Path) -> None:
    problem(marble("train", "none.yaml"), "none.yaml: no such file")
    assert not list(workdir.iterdir())


def call(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    """Exit code of a command that raises."""

    def raises() -> None:
        raise error

    app = typer.Typer()
    app.command()(raises)
    app.command(name="other")(lambda: None)
    monkeypatch.setattr(cli, "app", app)
    return cli.run(["raises"])


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A ValueError that no loading stood around is ours."""
    assert call(ValueError("impossible"), monkeypatch) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "ValueError: impossible" in err


def test_a_users_error_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(UserError("no model\nin /x"), monkeypatch) == 2
    assert capsys.readouterr().err == "error: no model in /x\n"


def test_several_problems_are_a_line_each(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(errors.ProblemsError(["one", "two"]), monkeypatch) == 2
    assert capsys.readouterr().err == "error: one\nerror: two\n"


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(KeyboardInterrupt(), monkeypatch) == 130


def test_loading_makes_value_and_os_errors_the_users(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^prompts: bad line$"), errors.loading("prompts"):
        raise ValueError("bad line")
    with pytest.raises(UserError, match=r"none\.txt: no such file"), errors.loading():
        (tmp_path / "none.txt").read_text()
    with pytest.raises(ZeroDivisionError), errors.loading():
        raise ZeroDivisionError
    with pytest.raises(UserError, match="as it was"), errors.loading("x"):
        raise UserError("as it was")


def test_what_an_actor_raised_is_told_without_its_traceback() -> None:
    """Ray's wrapper is of the cause's class too, and its text is the remote traceback."""

    class RayWrappedError(UserError):
        cause = UserError("no model in /x")

    assert errors.user_lines(RayWrappedError("Traceback ...\n  File ...")) == ("no model in /x",)


def test_a_closed_pipe_is_no_error() -> None:
    """`marble --help | true`."""
    command = f"{sys.executable} -m deploy.cli --help | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
