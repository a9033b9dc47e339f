"""Other operating systems: a clear error where this does not run."""

import sys

import pytest

from rock_env.errors import FailedPrecondition
from rock_env.platforms import check_hosting, check_import


def test_linux_runs_everything() -> None:
    check_import("linux")
    check_hosting("linux")


def test_macos_is_a_client_and_hosts_nothing() -> None:
    check_import("darwin")
    with pytest.raises(FailedPrecondition, match=r"macOS.* 'darwin', expected 'linux'.*--rock HOST:PORT"):
        check_hosting("darwin")


@pytest.mark.parametrize(("platform", "name"), [("win32", "Windows"), ("cygwin", "Cygwin")])
def test_windows_is_told_what_to_use(platform: str, name: str) -> None:
    with pytest.raises(ImportError, match=rf"{name}: got the platform '{platform}', expected 'linux'.*WSL 2"):
        check_import(platform)


def test_a_platform_without_a_name_of_ours_is_told_as_it_is() -> None:
    with pytest.raises(FailedPrecondition, match="freebsd14"):
        check_hosting("freebsd14")


def test_here_all_runs() -> None:
    check_hosting(sys.platform)
