"""The page of `scommer report` in a real browser: sorting, enlarging, widths, colours and print."""

import json
import os
import shutil

import pytest

from scommer.analysis.report import report, write

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
if not (BROWSER and DRIVER):
    pytest.skip("no browser: install chromium and chromium-driver", allow_module_level=True)
selenium = pytest.importorskip("selenium", reason="no selenium: pip install -e '.[dev]'")

from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
HOSTILE = "\"'><img src=x onerror=console.error(1)><script>console.error(2)</script>"


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(DRIVER, log_output=os.devnull)
    made = webdriver.Chrome(options=options, service=service)
    yield made
    made.quit()


@pytest.fixture(scope="module")
def address(make, tmp_path_factory):
    """A page of three methods, one without replay, with a class name that tries to inject code."""
    runs = [make("sgd", buffer=None), make("er"), *(make("scommer", s) for s in range(3))]
    for r in runs:
        r.stream.classes[0] = HOSTILE
    path = tmp_path_factory.mktemp("page") / "report.html"
    write(report(runs), path)
    return path.as_uri()


@pytest.fixture
def browser(driver, address):
    """The page, freshly opened on a wide screen."""
    screen(driver, 1280, 900)
    media(driver)
    for kind in ("browser", "performance"):
        driver.get_log(kind)  # discards earlier entries
    driver.get(address)
    return driver


def screen(driver, width, height):
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def media(driver, kind="", scheme="light"):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": kind, "features": features})


def table(driver, caption):
    return driver.find_element(By.ID, caption).find_element(By.XPATH, "./ancestor::table")


def column(grid, name):
    """The head of a column and its texts, from top to bottom."""
    heads = grid.find_elements(By.CSS_SELECTOR, "thead th")
    (at,) = (i for i, head in enumerate(heads) if head.text.strip().startswith(name))
    cells = [
        row.find_elements(By.CSS_SELECTOR, "th, td")[at] for row in grid.find_elements(By.CSS_SELECTOR, "tbody tr")
    ]
    return heads[at], [cell.text for cell in cells]


def means(texts):
    return [float(t.split(" ± ")[0]) for t in texts if t != "–"]


def test_a_click_sorts_up_and_then_down(browser):
    grid = table(browser, "s1-scores")
    head, before = column(grid, "accuracy")
    assert means(before) != sorted(means(before))
    assert head.get_attribute("aria-sort") is None
    head.find_element(By.TAG_NAME, "button").click()
    _, up = column(grid, "accuracy")
    assert means(up) == sorted(means(before))
    assert head.get_attribute("aria-sort") == "ascending"
    head.find_element(By.TAG_NAME, "button").click()
    assert means(column(grid, "accuracy")[1]) == sorted(means(before), reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    assert sorted(column(grid, "accuracy")[1]) == sorted(before)  # no row is lost


def test_the_keyboard_sorts_and_only_one_column_is_marked(browser):
    grid = table(browser, "s1-scores")
    column(grid, "forgetting")[0].find_element(By.TAG_NAME, "button").click()
    button = column(grid, "accuracy")[0].find_element(By.TAG_NAME, "button")
    browser.execute_script("arguments[0].focus()", button)
    for key, reverse in ((Keys.ENTER, False), (Keys.SPACE, True)):
        browser.switch_to.active_element.send_keys(key)
        _, texts = column(grid, "accuracy")
        assert means(texts) == sorted(means(texts), reverse=reverse)
    assert len(grid.find_elements(By.CSS_SELECTOR, "th[aria-sort]")) == 1
    assert browser.switch_to.active_element == button


def test_missing_values_stay_last(browser):
    grid = table(browser, "s1-measures")
    for _ in range(2):
        head, _ = column(grid, "r with P_s")
        head.find_element(By.TAG_NAME, "button").click()
        texts = column(grid, "r with P_s")[1]
        assert "–" in texts
        assert set(texts[-texts.count("–") :]) == {"–"}


def test_text_is_sorted_alphabetically(browser):
    grid = table(browser, "summary-table")
    column(grid, "method")[0].find_element(By.TAG_NAME, "button").click()
    assert column(grid, "method")[1] == ["ER", "SCoMMER", "SGD"]


@pytest.mark.parametrize("way", ["click", "keyboard"])
def test_a_figure_enlarges_and_escape_returns_the_focus(browser, way):
    button = browser.find_elements(By.CSS_SELECTOR, "button.enlarge")[1]
    dialog = browser.find_element(By.ID, "viewer")
    small = button.find_element(By.TAG_NAME, "img").rect
    assert not dialog.is_displayed()
    if way == "click":
        button.click()
    else:
        browser.execute_script("arguments[0].focus()", button)
        browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert dialog.is_displayed()
    image = dialog.find_element(By.TAG_NAME, "img")
    assert image.get_attribute("src") == button.find_element(By.TAG_NAME, "img").get_attribute("src")
    assert image.rect["height"] > 1.2 * small["height"]
    assert browser.execute_script("return arguments[0].contains(document.activeElement)", dialog)
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not dialog.is_displayed()
    assert browser.switch_to.active_element == button


def test_the_close_button_closes_the_dialog(browser):
    button = browser.find_element(By.CSS_SELECTOR, "button.enlarge")
    button.click()
    browser.find_element(By.CSS_SELECTOR, "#viewer button").click()
    assert not browser.find_element(By.ID, "viewer").is_displayed()
    assert browser.switch_to.active_element == button


def test_a_tall_figure_is_as_wide_as_the_dialog_and_scrolls(browser):
    browser.find_element(By.CSS_SELECTOR, "figure.matrices button.enlarge").click()
    stage = browser.find_element(By.CSS_SELECTOR, "#viewer .stage")
    assert stage.find_element(By.TAG_NAME, "img").size["width"] == browser.execute_script(
        "return arguments[0].clientWidth", stage
    )
    browser.find_element(By.CSS_SELECTOR, "#viewer button").click()
    browser.find_element(By.CSS_SELECTOR, "figure.tasks button.enlarge").click()
    assert "tall" not in stage.get_attribute("class")


def test_every_figure_is_drawn(browser):
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('figure img')].map(i => [i.complete, i.naturalWidth])"
    )
    assert len(sizes) == 7
    assert all(complete and width > 100 for complete, width in sizes)


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_fits_the_screen_and_wide_tables_scroll(browser, width):
    screen(browser, width, 740)
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    wide, inner = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert wide <= inner == width
    box = table(browser, "s1-scores").find_element(By.XPATH, "..")
    if width == 360:
        assert browser.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth", box)
        browser.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0]))")
        assert box.get_attribute("tabindex") == "0"  # the keyboard can scroll it


def test_names_run_no_code_and_the_page_makes_no_requests(browser):
    browser.find_element(By.CSS_SELECTOR, "button.enlarge").click()
    assert HOSTILE in browser.find_element(By.ID, "s1-forgotten").find_element(By.XPATH, "..").get_attribute(
        "textContent"
    )
    assert browser.execute_script("return document.scripts.length") == 1
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert any(url.startswith("file:") for url in asked)
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert sum(url.startswith("file:") for url in asked) == 1  # the page itself


def brightness(driver, selector, what):
    value = driver.execute_script(
        "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]", selector, what
    )
    channels = [int(v) for v in value[value.index("(") + 1 : -1].split(",")[:3]]
    return sum(channels) / 3


def test_colours_follow_the_system_and_figures_stay_on_light_ground(browser):
    for scheme in ("light", "dark"):
        media(browser, scheme=scheme)
        ground, ink = brightness(browser, "body", "backgroundColor"), brightness(browser, "body", "color")
        assert (ground > 200 > 60 > ink) if scheme == "light" else (ground < 60 < 200 < ink)
        assert brightness(browser, ".enlarge", "backgroundColor") > 200


def test_print_shows_all_details_and_no_controls(browser):
    arrow = "return getComputedStyle(document.querySelector('th button'), '::after').display"
    assert browser.execute_script(arrow) != "none"
    assert browser.find_element(By.TAG_NAME, "nav").is_displayed()
    media(browser, "print", "dark")
    assert browser.execute_script(arrow) == "none"
    assert not browser.find_element(By.TAG_NAME, "nav").is_displayed()
    assert brightness(browser, "body", "backgroundColor") == 255
    box = table(browser, "s1-scores").find_element(By.XPATH, "..")
    assert box.value_of_css_property("overflow-x") == "visible"
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert not browser.find_elements(By.CSS_SELECTOR, "details:not([open])")
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert not browser.find_elements(By.CSS_SELECTOR, "details[open]")


def test_it_prints(browser):
    drawn = "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
    browser.execute_async_script(drawn)  # a page that was never on the screen prints blank
    printed = browser.print_page()
    assert len(printed) > 10_000
