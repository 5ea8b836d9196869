"""What pyproject.toml cannot say.

The compiled leaves are built where Cython and a compiler are, and left out where not. Every module of protocol/compiled
is one, in Cython's pure-Python mode. See docs/decisions/0007-compiled-modules.md.

    SKYLARK_PURE=1                         no compiled modules: a wheel for any platform (py3-none-any)
    SKYLARK_BOUNDSCHECK=1                  indexing checked, for tests
    SKYLARK_SANITIZE=address,undefined     the same, with these sanitizers of the C compiler (tests/fuzz/sanitized.py)
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
    if cythonize is None or os.environ.get("SKYLARK_PURE") == "1":
        return []
    modules = Path("src/skylarkmq/protocol/compiled").glob("*.py")
    sources = sorted(path for path in modules if path.name != "__init__.py")
    extensions = [Extension(f"skylarkmq.protocol.compiled.{path.stem}", [str(path)]) for path in sources]
    sanitizers = os.environ.get("SKYLARK_SANITIZE")
    is_checked = bool(sanitizers or os.environ.get("SKYLARK_BOUNDSCHECK"))
    directives = {
        "language_level": 3,
        "boundscheck": is_checked,
        "wraparound": is_checked,
        "cdivision": True,
        "binding": False,
    }
    build_dir = "build/sanitized/leaves" if sanitizers else "build/leaves"  # Cython does not notice other directives
    leaves = cythonize(extensions, build_dir=build_dir, compiler_directives=directives)
    for leaf in leaves:
        leaf.optional = not sanitizers  # cythonize does not keep it
        leaf.extra_compile_args = ["-g0"]  # a quarter of the size
        if sanitizers:
            leaf.extra_compile_args = ["-O1", "-g1", "-fno-omit-frame-pointer", *sanitizer_flags(sanitizers)]
            leaf.extra_link_args = sanitizer_flags(sanitizers)
    return leaves


def sanitizer_flags(names):
    """A finding of any of these sanitizers ends the process."""
    return [f"-fsanitize={names}", f"-fno-sanitize-recover={names}"]


setup(ext_modules=compiled_leaves())
