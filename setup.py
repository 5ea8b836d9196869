"""What pyproject.toml cannot say: the compiled leaves, built where Cython and a compiler are, left out where not.

Every module of protocol/compiled is one, in Cython's pure-Python mode. See docs/decisions/0007-compiled-leaves.md.

    SKYLARK_BOUNDSCHECK=1    indexing checked, for tests
"""

import os
from pathlib import Path

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:
    cythonize = None


def compiled_leaves():
    """The extension modules; none where there is no Cython. One that does not compile is left out with a warning."""
    if cythonize is None:
        return []
    sources = sorted(path for path in Path("protocol/compiled").glob("*.py") if path.name != "__init__.py")
    extensions = [Extension(f"protocol.compiled.{path.stem}", [str(path)]) for path in sources]
    is_checked = bool(os.environ.get("SKYLARK_BOUNDSCHECK"))
    directives = {
        "language_level": 3,
        "boundscheck": is_checked,
        "wraparound": is_checked,
        "cdivision": True,
        "binding": False,
    }
    leaves = cythonize(extensions, build_dir="build/leaves", compiler_directives=directives)
    for leaf in leaves:
        leaf.optional = True  # cythonize does not keep it
        leaf.extra_compile_args = ["-g0"]  # a quarter of the size
    return leaves


setup(ext_modules=compiled_leaves())
