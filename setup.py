"""The part of the build that pyproject.toml cannot express: the compiled modules.

They are built if Cython and a C compiler are available, and left out otherwise. Every module of protocol/compiled is
one, in Cython's pure-Python mode. See docs/decisions/0007-compiled-modules.md.

    SKYLARK_PURE=1                         no compiled modules: a wheel for any platform (py3-none-any)
    SKYLARK_BOUNDSCHECK=1                  check indexes, for tests
    SKYLARK_SANITIZE=address,undefined     check indexes and use these sanitizers (tests/fuzz/sanitized.py)
"""

import os
from pathlib import Path

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:
    cythonize = None


def compiled_modules():
    """Return the extension modules; none without Cython. One that does not compile is left out with a warning."""
    if cythonize is None or os.environ.get("SKYLARK_PURE") == "1":
        return []
    paths = Path("src/skylarkmq/protocol/compiled").glob("*.py")
    sources = sorted(path for path in paths if path.name != "__init__.py")
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
    build_dir = "build/sanitized/modules" if sanitizers else "build/modules"  # else Cython does not rebuild
    modules = cythonize(extensions, build_dir=build_dir, compiler_directives=directives)
    for module in modules:
        module.optional = not sanitizers  # cythonize does not keep it
        # Numbers wrap, as in the build of Python, whose flags a CFLAGS of the environment replaces. Without debug
        # information the modules have a quarter of the size.
        module.extra_compile_args = ["-fwrapv", "-g0"]
        if sanitizers:
            module.extra_compile_args = ["-fwrapv", "-g1", "-fno-omit-frame-pointer", *sanitizer_flags(sanitizers)]
            module.extra_link_args = sanitizer_flags(sanitizers)
    return modules


def sanitizer_flags(names):
    """Return the compiler flags; a finding of any of these sanitizers ends the process."""
    return [f"-fsanitize={names}", f"-fno-sanitize-recover={names}"]


setup(ext_modules=compiled_modules(), options={"build_ext": {"parallel": os.cpu_count()}})
