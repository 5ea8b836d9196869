"""docs/use/spark/jobs agrees with the code: the tables of the fields of each summary.

`python -m tests.test_spark_jobs_document` writes the tables.
"""

import re
from pathlib import Path

from skylarkmq.clients.spark.jobs import dead_letters, duplicates, lag, redrive, trace_summary
from skylarkmq.clients.terminal.printed_output import Summary, fields_table

PAGES = sorted((Path(__file__).resolve().parent.parent / "docs" / "use" / "spark" / "jobs").glob("*.md"))
STRUCTS = {
    name: kind
    for module in (dead_letters, duplicates, lag, redrive, trace_summary)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, Summary) and kind is not Summary
}
TABLE = re.compile(r"<!-- fields: (\w+) -->\n\n((?:\|.*\n)*)")


def test_every_field_of_the_json_is_documented() -> None:
    """The pages have the table of each struct, once, as `fields_table` makes it."""
    documented = [found for page in PAGES for found in TABLE.findall(page.read_text())]
    assert sorted(documented) == sorted((name, fields_table(kind)) for name, kind in STRUCTS.items())


if __name__ == "__main__":
    for page in PAGES:
        text = TABLE.sub(
            lambda found: f"<!-- fields: {found[1]} -->\n\n{fields_table(STRUCTS[found[1]])}", page.read_text()
        )
        page.write_text(text)
