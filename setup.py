"""What pyproject.toml cannot say.

The compiled leaves are built where Cython and a compiler are, and left out where not. Every module of protocol/compiled
is one, in Cython's pure-Python mode. See docs/decisions/0007-compiled-leaves.md.

    SKYLARK_BOUNDSCHECK=1                  indexing checked, for tests
    SKYLARK_SANITIZE=address,undefined     the same, with these sanitizers of the C compiler (tests/fuzz/sanitized.py)

Spark finds data sources by the files of top-level modules on sys.path that are named pyspark_*. Ours lie in
clients/spark/top_level and are installed beside the packages. An editable installation serves modules from here through
an import hook, which Spark does not ask; there they are copied into site-packages, as data files.
"""

import os
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

try:
    from Cython.Build import cythonize
except ImportError:
    cythonize = None


TOP_LEVEL = {path.stem: str(path) for path in sorted(Path("clients/spark/top_level").glob("*.py"))}


class BuildPy(build_py):
    """Takes top-level modules from where they lie."""

    def find_modules(self):
        """(package, module, file) of each."""
        return [("", name, path) for name, path in TOP_LEVEL.items()]


class EditableWheel(editable_wheel):
    """Brings the top-level modules as files."""

    def run(self):
        """As ever, with these files beside the hook."""
        site_packages = os.path.relpath(sysconfig.get_path("purelib"), sys.prefix)
        self.distribution.data_files = [(site_packages, list(TOP_LEVEL.values()))]
        self.distribution.has_data = self.distribution.has_data_files  # the name by which setuptools asks here
        super().run()


def compiled_leaves():
    """The extension modules; none where there is no Cython. One that does not compile is left out with a warning."""
    if cythonize is None:
        return []
    sources = sorted(path for path in Path("protocol/compiled").glob("*.py") if path.name != "__init__.py")
    extensions = [Extension(f"protocol.compiled.{path.stem}", [str(path)]) for path in sources]
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


setup(
    ext_modules=compiled_leaves(),
    py_modules=list(TOP_LEVEL),
    cmdclass={"build_py": BuildPy, "editable_wheel": EditableWheel},
)
