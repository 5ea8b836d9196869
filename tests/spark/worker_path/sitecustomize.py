"""Python processes of Spark import PySpark from the installed package, which has bytecode.

Spark puts archives first on their path: `pyspark.zip` and py4j's sources, which each process would compile again, and
the jar of spark-core. Before each task Python 3.11 would also read the directory of each archive again
(`importlib.invalidate_caches`). Both took more CPU than the tasks of the tests.

Python imports this module at the start of each process that has this folder on its path (tests/spark/session.py).
"""

import sys

ARCHIVES = (".jar", "pyspark.zip", "-src.zip")

for path in [path for path in sys.path if path.endswith(ARCHIVES)]:
    sys.path.remove(path)
    sys.path_importer_cache.pop(path, None)
