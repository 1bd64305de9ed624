"""Pictures of the explorer for README and docs; needs chromium and playwright.

python tools/screenshots.py RUN [CLIMATE]
"""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from verax.studies.runs import Run

IMAGES = Path(__file__).parent.parent / "docs" / "images"
SHOWN = ("lime", "integrated-gradients", "lrp-z", "lrp-alpha1beta0", "gradient", "oracle")


@contextmanager
def opened(folder: str, view: str, height: int = 826) -> Iterator[Page]:
    """The report of a run in a browser, with a view of its gallery."""
    path = Run(folder).report().resolve()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1480, "height": height}, color_scheme="light")
        page.goto(path.as_uri() + view)
        page.wait_for_selector("#viewer canvas")
        page.wait_for_selector("html[data-ready]")
        page.wait_for_timeout(1000)
        yield page
        browser.close()


def picture(data: bytes) -> Image.Image:
    """A screenshot as a picture."""
    return Image.open(io.BytesIO(data)).convert("RGB")


def main(folder: str, climate: str = "") -> None:
    """Write docs/images/explorer.png, the first screen and the gallery below it, and a climate gallery."""
    with opened(folder, "#gallery?task=textbox%2Fcomplex-cr1&bucket=11") as page:
        below = picture(page.locator("#viewer").screenshot())
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(500)
        above = picture(page.screenshot())
    whole = Image.new("RGB", (above.width, above.height + below.height + 20), "#f6f7f9")
    whole.paste(above, (0, 0))
    whole.paste(below, ((above.width - below.width) // 2, above.height))
    whole.quantize(128).save(IMAGES / "explorer.png", optimize=True)
    if climate:
        methods = "".join(f"&method={name}" for name in SHOWN)
        with opened(climate, f"#gallery?sort=disagreement{methods}", 760) as page:
            found = picture(page.locator("#gallery").screenshot())
        found.crop((0, 0, found.width, min(760, found.height))).quantize(128).save(
            IMAGES / "explorer-climate.png", optimize=True
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
