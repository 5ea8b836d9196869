"""helm and kustomize, built from their Go modules. The versions are in kubernetes/modules."""

from pathlib import Path
from typing import Final

from tests.interop.toolchain import fetch, product

HERE: Final = Path(__file__).resolve().parent / "kubernetes"
MODULES: Final = dict(line.split() for line in (HERE / "modules").read_text().splitlines())


def go_command(name: str) -> Path:
    """Return the executable with this name; the first build takes some minutes."""

    def recipe(target: Path) -> None:
        fetch(["env", f"GOBIN={target}", "go", "install", MODULES[name]], cwd=target)

    return product(name, HERE, recipe, tools=("go",), recipe_id=MODULES[name]) / name
