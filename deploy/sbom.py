"""Write the software bill of materials of the image's Python packages, as CycloneDX JSON.

    python deploy/sbom.py [FILE]               FILE defaults to build/sbom.cdx.json

It lists every entry of requirements.lock with its hashes. A package that is locked at two versions, for older and newer
Python, is listed twice. The same lock gives the same bytes. The generator (cyclonedx-bom, extra `dev`) validates its
output against the CycloneDX schema; the script fails if the output is invalid.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GENERATOR = (
    sys.executable, "-m", "cyclonedx_py", "requirements", "--validate", "--output-reproducible", "--output-format=JSON",
    f"--pyproject={ROOT / 'pyproject.toml'}",
)  # fmt: skip


def main(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = ROOT / "deploy" / "requirements.lock"
    subprocess.run([*GENERATOR, f"--output-file={target}", str(lock)], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "sbom.cdx.json")
