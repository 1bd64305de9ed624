"""Build the charting library that reports carry, with the licences of everything in it.

Needs node and npm. Versions are those of tools/charting/package.json.

python tools/charting.py
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent / "charting"
ASSETS = Path(__file__).parent.parent / "src" / "verax" / "reports" / "assets"


def licences(modules: Path, packages: set[str]) -> str:
    """The licence of each package, equal texts once."""
    texts: dict[str, list[str]] = {}
    for name in sorted(packages):
        about = json.loads((modules / name / "package.json").read_text())
        file = next(iter(sorted((modules / name).glob("LICEN[SC]E*"))), None)
        text = file.read_text().strip() if file else f"License: {about['license']}"
        texts.setdefault(text, []).append(f"{name} {about['version']}")
    return "\n\n".join(f"{', '.join(names)}\n\n{text}" for text, names in texts.items()) + "\n"


def main() -> None:
    """Install, bundle, write."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for file in HERE.iterdir():
            shutil.copy(file, work)
        subprocess.run(["npm", "install", "--silent", "--no-package-lock"], cwd=work, check=True)
        options = ["--bundle", "--minify", "--format=iife", "--target=es2022", "--legal-comments=none"]
        command = ["npx", "esbuild", "entry.js", *options, "--metafile=meta.json", "--outfile=vega.js"]
        subprocess.run(command, cwd=work, check=True)
        used = json.loads((work / "meta.json").read_text())["inputs"]
        parts = [path.partition("node_modules/")[2].split("/") for path in used if "node_modules/" in path]
        packages = {"/".join(part[: 2 if part[0].startswith("@") else 1]) for part in parts}
        ASSETS.mkdir(parents=True, exist_ok=True)
        versions = json.loads((work / "package.json").read_text())["dependencies"]
        head = ", ".join(f"{name} {version}" for name, version in versions.items())
        script = (work / "vega.js").read_text()
        assert "</script" not in script.lower(), "the page that carries it would end there"
        (ASSETS / "vega.js").write_text(f"/* {head}; licences: vega.LICENSES.txt */\n{script}")
        (ASSETS / "vega.LICENSES.txt").write_text(licences(work / "node_modules", packages))


if __name__ == "__main__":
    main()
