from __future__ import annotations

import os
from pathlib import Path

import pytest

from vpatch.errors import HostError
from vpatch.upstream.pipconfig import read_pip_config


@pytest.fixture
def no_pip(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """None of the machine's PIP_* variables; no files unless the test names one."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return monkeypatch


def test_without_settings_pip_has_one_index_and_that_is_ours(no_pip: pytest.MonkeyPatch) -> None:
    config = read_pip_config()
    assert len(config.index_urls) == 1
    assert config.index_urls[0].startswith("https://")
    assert config.find_links == ()
    assert (config.timeout, config.retries) == (15.0, 5)


def test_variables_win_over_files_and_install_over_global(
    no_pip: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = tmp_path / "pip.conf"
    settings.write_text(
        "[global]\nindex-url = https://global.invalid/simple\ntimeout = 7\nretries = 2\n"
        "find-links =\n    /one\n    /two\nextra-index-url = https://more.invalid/a\n"
        "    https://more.invalid/b\ncert = /x.pem\n"
        "[install]\ntimeout = 8\n[freeze]\ntimeout = 99\n"
    )
    no_pip.setenv("PIP_CONFIG_FILE", str(settings))
    no_pip.setenv("PIP_INDEX_URL", "https://env.invalid/simple")
    no_pip.setenv("PIP_RETRIES", "0")
    no_pip.setenv("PIP_CERT", "")  # an empty variable is none
    config = read_pip_config()
    assert config.index_urls == (
        "https://env.invalid/simple",
        "https://more.invalid/a",
        "https://more.invalid/b",
    )
    assert config.find_links == ("/one", "/two")
    assert (config.timeout, config.retries, config.cert) == (8.0, 0, "/x.pem")


def test_of_two_files_the_one_that_pip_prefers_wins(no_pip: pytest.MonkeyPatch) -> None:
    # pip lists files by name, ".config" before ".pip", but lets the newer place win.
    no_pip.delenv("PIP_CONFIG_FILE")
    for place in (".config/pip/pip.conf", ".pip/pip.conf"):
        settings = Path(os.environ["HOME"]) / place
        settings.parent.mkdir(parents=True)
        settings.write_text(f"[global]\nindex-url = https://{place.split('/')[0]}.invalid/\n")
    assert read_pip_config().index_urls[0] == "https://.config.invalid/"


def test_no_index_leaves_find_links(no_pip: pytest.MonkeyPatch) -> None:
    no_pip.setenv("PIP_NO_INDEX", "yes")
    no_pip.setenv("PIP_FIND_LINKS", "/wheels file:///more")
    config = read_pip_config()
    assert config.index_urls == ()
    assert config.find_links == ("/wheels", "file:///more")


def test_no_login_is_ever_shown(no_pip: pytest.MonkeyPatch) -> None:
    no_pip.setenv("PIP_INDEX_URL", "https://me:geheim@env.invalid/simple")
    no_pip.setenv("PIP_PROXY", "http://me:geheim@proxy.invalid:3128")
    config = read_pip_config()
    assert "geheim" in config.index_urls[0]
    assert "geheim" not in repr(config) + str(config)


@pytest.mark.parametrize(("name", "value"), [("PIP_TIMEOUT", "soon"), ("PIP_NO_INDEX", "perhaps")])
def test_a_value_that_makes_no_sense_is_named(
    no_pip: pytest.MonkeyPatch, name: str, value: str
) -> None:
    no_pip.setenv(name, value)
    option = name.removeprefix("PIP_").lower().replace("_", "-")
    with pytest.raises(HostError, match=option) as caught:
        read_pip_config()
    assert caught.value.hint


def test_a_broken_file_is_pips_failure_in_its_words(
    no_pip: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "pip.conf"
    broken.write_text("index-url = https://me:geheim@x.invalid/\n")
    no_pip.setenv("PIP_CONFIG_FILE", str(broken))
    with pytest.raises(HostError) as caught:
        read_pip_config()
    assert caught.value.code == "pip-config"
    assert "geheim" not in caught.value.message


def test_a_pip_in_the_users_folder_is_not_run(no_pip: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pip.py").write_text("raise SystemExit('ran the wrong pip')\n")
    no_pip.chdir(tmp_path)
    assert read_pip_config().index_urls
