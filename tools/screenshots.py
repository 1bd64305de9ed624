"""Pictures of the explorer for README and docs; needs chromium and playwright.

python tools/screenshots.py RUN
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from verax.studies.runs import Run

IMAGES = Path(__file__).parent.parent / "docs" / "images"


def main(folder: str) -> None:
    """Write docs/images/explorer.png: the first screen, and the gallery below it."""
    path = Run(folder).report().resolve()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1480, "height": 840}, color_scheme="light")
        page.goto(path.as_uri() + "#gallery?task=textbox%2Fcomplex-cr1&bucket=11")
        page.wait_for_selector("#viewer canvas")
        page.wait_for_timeout(500)
        below = page.locator("#viewer").screenshot()
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_selector("figure[data-drawn=yes] svg")
        page.wait_for_timeout(1000)
        above = page.screenshot()
        browser.close()
    parts = [Image.open(io.BytesIO(data)).convert("RGB") for data in (above, below)]
    whole = Image.new("RGB", (parts[0].width, sum(part.height for part in parts) + 20), "#f6f7f9")
    whole.paste(parts[0], (0, 0))
    whole.paste(parts[1], ((parts[0].width - parts[1].width) // 2, parts[0].height))
    whole.quantize(128).save(IMAGES / "explorer.png", optimize=True)


if __name__ == "__main__":
    main(sys.argv[1])
