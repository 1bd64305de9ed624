"""Run the tests of what a GPU does differently: on one if there is one, else on a pretended one.

    python tests/pretend/run.py [arguments of pytest]

The pretended one is compiled where it is missing or older than its source or PyTorch. Where there can be
none, that is said, and nothing is tested.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
SOURCE, LIBRARY = HERE / "gpu.cpp", Path(sys.prefix) / "pretended-gpu.so"
COMPILER = os.environ.get("CXX", "g++")


def hindrance() -> str:
    """Why there can be no pretended GPU here, if so."""
    if torch.version.cuda or torch.version.hip:
        return "PyTorch is built for GPUs, of which there is none, and leaves no room for a pretended one"
    if platform.system() != "Linux" or shutil.which(COMPILER) is None:
        return f"a pretended GPU needs Linux and a C++ compiler ({COMPILER})"
    return ""


def compiled() -> None:
    """Make the library, unless it is there."""
    torch_itself = Path(torch.__file__)
    sources = (SOURCE, torch_itself.with_name("version.py"))
    if LIBRARY.exists() and all(LIBRARY.stat().st_mtime > path.stat().st_mtime for path in sources):
        return
    folder = torch_itself.parent
    libraries = [f"-L{folder / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{folder / 'lib'}"]
    flags = ["-O1", "-std=c++20", "-fPIC", "-shared", f"-I{folder / 'include'}"]
    made = LIBRARY.with_suffix(".new")
    subprocess.run([COMPILER, *flags, str(SOURCE), *libraries, "-o", str(made)], check=True)
    made.replace(LIBRARY)


def main() -> int:
    """Run the tests where they can run."""
    environment = dict(os.environ)
    if not torch.cuda.is_available():
        if why := hindrance():
            print(f"What a GPU does differently is not tested: {why}.")
            return 0
        compiled()
        paths = [str(HERE), *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    asked = sys.argv[1:] or ["-m", "gpu and not slow", "-n", "2"]
    line = [sys.executable, "-m", "pytest", "--gpu", *asked]
    return subprocess.run(line, env=environment, cwd=HERE.parents[1]).returncode


if __name__ == "__main__":
    sys.exit(main())
