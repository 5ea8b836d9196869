"""The tests that run again without compiled modules are those of every package that loads one."""

from tests.harness.interpreted import DAEMONS, ROOT, folder_of, loading_modules, packages


def test_each_module_that_loads_a_compiled_one_is_tested_without_it() -> None:
    """Its tests are in a folder or file of the list; all of these exist."""
    listed = packages()
    assert all((ROOT / each).exists() for each in (*listed, *DAEMONS))
    for module in loading_modules():
        tests = folder_of([module])
        assert any(tests == each or tests.startswith(f"{each}/") for each in listed), module


def test_only_packages_that_load_a_compiled_module_run_again() -> None:
    """Not the console, access control or the configuration."""
    listed = packages()
    assert {"tests/protocol", "tests/broker/store", "tests/broker/remoting", "tests/clients/arrow"} <= set(listed)
    assert not {"tests/broker/access", "tests/broker/config", "tests/clients/console"} & set(listed)
