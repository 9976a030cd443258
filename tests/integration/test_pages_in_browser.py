"""The pages that this room writes, in headless Chromium: what people see, and voting by keyboard."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from deploy import cli
from tests.unit.deploy.report.made_run import Kind, write_run

pytestmark = [pytest.mark.slow, pytest.mark.browser]

WIDE, PHONE, SIDEWAYS = (1280, 900), (390, 844), (844, 390)
UNSEEN = """
return [...document.querySelectorAll("img, figure svg")].filter(one => {
  const box = one.getBoundingClientRect();
  return box.width < 20 || box.height < 20 || (one.tagName === "IMG" && !(one.complete && one.naturalWidth));
}).length
"""
OVERFLOW = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[WebDriver]:
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # Named, so that selenium does not look for one to download.
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return write_run(folder / "first"), write_run(
        folder / "second", seed=2, shift=0.1, changes={"harmonizer.method": "fixed"}
    )


KINDS = (
    Kind(summed=True, stages=(("align", 2), ("text", 1)), measured=True),
    Kind(measured=True, alarmed=True),
    Kind(flow_grpo=True),
)
"""Besides plain MARBLE."""


@pytest.fixture(scope="module")
def pages(runs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Number of runs -> their report; the third and those after it are of other kinds."""
    folder = tmp_path_factory.mktemp("pages")
    others = [write_run(folder / f"kind{n}", shift=0.02 * n, kind=kind) for n, kind in enumerate(KINDS)]
    found = {num: folder / f"report{num}.html" for num in (1, 2, 5)}
    for num, page in found.items():
        assert cli.run(["report", *map(str, [*runs, *others][:num]), "--out", str(page)]) == 0
    return found


def sized(browser: WebDriver, size: tuple[int, int]) -> None:
    """A window of exactly this size, also smaller than a desktop's may be."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)  # type: ignore[attr-defined]


def complaints(browser: WebDriver) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser")]  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["1280 px", "phone"])
@pytest.mark.parametrize("num_runs", [1, 2, 5])
def test_a_report_shows_every_picture_fits_the_screen_and_says_nothing_on_the_console(
    browser: WebDriver, pages: dict[int, Path], size: tuple[int, int], num_runs: int
) -> None:
    sized(browser, size)
    browser.get(pages[num_runs].as_uri())
    assert len(browser.find_elements(By.CSS_SELECTOR, "img")) == 3 * (num_runs + 1)
    assert len(browser.find_elements(By.CSS_SELECTOR, "figure svg")) >= 12
    assert browser.execute_script(UNSEEN) == 0
    assert browser.execute_script(OVERFLOW) <= 0
    assert complaints(browser) == []
    browser.find_element(By.LINK_TEXT, "Pictures").click()
    assert browser.execute_script("return location.hash") == "#pictures"


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["1280 px", "phone"])
def test_votes_by_keyboard_are_kept_saved_and_counted(
    browser: WebDriver,
    runs: tuple[Path, Path],
    tmp_path: Path,
    size: tuple[int, int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "arena"
    assert cli.run(["arena", *map(str, runs), "--out", str(folder)]) == 0
    sized(browser, size)
    downloads = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", downloads)  # type: ignore[attr-defined]
    browser.get((folder / "arena.html").as_uri())
    body = browser.find_element(By.TAG_NAME, "body")
    counter = browser.find_element(By.ID, "count")
    assert counter.text == "1 of 3"
    assert browser.execute_script(UNSEEN) == 0
    assert browser.execute_script(OVERFLOW) <= 0
    assert "<b>" not in browser.find_element(By.ID, "prompt").get_attribute("innerHTML")
    # A keyboard needs no pointer: only a finger hides the keys' names.
    assert browser.find_element(By.TAG_NAME, "kbd").is_displayed()

    body.send_keys(Keys.ARROW_RIGHT)
    body.send_keys(Keys.ARROW_DOWN)
    assert counter.text == "3 of 3"
    body.send_keys(Keys.ARROW_UP, Keys.ARROW_UP)
    assert counter.text == "1 of 3"
    assert "chosen" in browser.find_element(By.ID, "right").get_attribute("class")
    body.send_keys(Keys.ARROW_LEFT)
    WebDriverWait(browser, 20).until(_kept)
    browser.find_element(By.ID, "right").click()
    assert browser.find_element(By.ID, "done").is_displayed()

    browser.find_element(By.TAG_NAME, "body").send_keys("s")
    saved = _downloaded(tmp_path)
    choices = [vote["choice"] for vote in json.loads(saved.read_text())["votes"]]
    assert choices == ["left", "tie", "right"]
    assert complaints(browser) == []
    capsys.readouterr()
    assert cli.run(["arena", "--tally", str(saved), "--key", str(folder / "key.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["choices"] == {"left": 1, "tie": 1, "right": 1}


def test_a_phone_held_sideways_sees_both_pictures_and_the_buttons_at_once(
    browser: WebDriver, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    assert cli.run(["arena", *map(str, runs), "--out", str(tmp_path / "arena")]) == 0
    sized(browser, SIDEWAYS)
    browser.get((tmp_path / "arena" / "arena.html").as_uri())
    left, right = (browser.find_element(By.ID, side).rect for side in ("left", "right"))
    assert 0 < right["x"] - (left["x"] + left["width"]) < 40
    assert left["width"] > 180
    button = browser.find_element(By.ID, "tie").rect
    assert button["y"] + button["height"] <= SIDEWAYS[1]


def _kept(browser: WebDriver) -> bool:
    """Whether the page, loaded anew, goes on at the third pair: the browser writes votes down in its own time."""
    browser.refresh()
    return browser.find_element(By.ID, "count").text == "3 of 3"


def _downloaded(folder: Path) -> Path:
    """The saved votes, once the browser has written them."""
    for _ in range(100):
        found = list(folder.glob("votes-*.json"))
        if found:
            return found[0]
        time.sleep(0.1)
    raise AssertionError(f"nothing was saved in {folder}")
