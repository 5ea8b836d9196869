"""Commands that are built from Go modules: helm and kustomize (versions: kubernetes/modules), and compose/main.go."""

from pathlib import Path
from typing import Final

from tests.interop.toolchain import fetch, product, run

HERE: Final = Path(__file__).resolve().parent / "kubernetes"
MODULES: Final = dict(line.split() for line in (HERE / "modules").read_text().splitlines())


def go_command(name: str) -> Path:
    """Return the executable with this name; the first build takes some minutes."""

    def recipe(target: Path) -> None:
        fetch(["env", f"GOBIN={target}", "go", "install", MODULES[name]], cwd=target)

    return product(name, HERE, recipe, tools=("go",), recipe_id=MODULES[name]) / name


def compose_loader() -> Path:
    """Return the executable that checks compose files, with the module that `docker compose` loads them with."""

    def recipe(target: Path) -> None:
        fetch(["go", "mod", "download"], cwd=target)
        run(["go", "build", "-o", "compose", "."], cwd=target)

    return product("compose", HERE.parent / "compose", recipe, tools=("go",)) / "compose"
