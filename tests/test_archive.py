from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from archives import ADDED, TREE, make_sdist, make_tar, make_wheel, record_line, tar_member
from vpatch.errors import HostError
from vpatch.upstream.archive import Limits, Member, read_sdist
from vpatch.upstream.zipread import read_wheel

GOOD = tar_member("vllm-0.17.1/setup.py", b"ok\n")


def sdist(tmp_path: Path, data: bytes) -> Path:
    """The bytes as a file."""
    path = tmp_path / "vllm-0.17.1.tar.gz"
    path.write_bytes(data)
    return path


def special(name: str, kind: bytes, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    """A member that is no regular file."""
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = link
    return info, b""


def test_an_sdist_is_its_files_below_the_top_folder(tmp_path: Path) -> None:
    members = {member.path: member for member in read_sdist(sdist(tmp_path, make_sdist()))}
    assert set(members) == set(TREE) | set(ADDED)
    assert members["tools/run.sh"].mode == 0o100755
    # Written with the group's bit, as upstream's: only the owner's x counts.
    assert members["setup.py"].mode == 0o100644
    assert members["vllm/latin.py"].data == b"# \xe9\n"


def test_names_that_are_not_utf8_keep_their_bytes(tmp_path: Path) -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as tar:
        info, data = tar_member("vllm-0.17.1/\udce9.py", b"x")
        tar.addfile(info, io.BytesIO(data))
    (member,) = read_sdist(sdist(tmp_path, gzip.compress(plain.getvalue())))
    assert member.path.encode("utf-8", "surrogateescape") == b"\xe9.py"


HOSTILE = {
    "traversal": tar_member("vllm-0.17.1/../../etc/x"),
    "absolute": tar_member("/etc/x"),
    "other top": tar_member("other/x"),
    "no top": tar_member("x"),
    "symlink": special("vllm-0.17.1/x", tarfile.SYMTYPE, "/etc/passwd"),
    "inner symlink": special("vllm-0.17.1/x", tarfile.SYMTYPE, "setup.py"),
    "hard link": special("vllm-0.17.1/x", tarfile.LNKTYPE, "vllm-0.17.1/setup.py"),
    "device": special("vllm-0.17.1/x", tarfile.CHRTYPE),
    "block device": special("vllm-0.17.1/x", tarfile.BLKTYPE),
    "fifo": special("vllm-0.17.1/x", tarfile.FIFOTYPE),
    "unknown kind": special("vllm-0.17.1/x", b"Z"),
    "twice": tar_member("vllm-0.17.1/setup.py", b"other\n"),
    "twice, with a dot": tar_member("./vllm-0.17.1/setup.py", b"other\n"),
    "file as folder": tar_member("vllm-0.17.1/setup.py/x"),
    "folder as file": special("vllm-0.17.1/setup.py", tarfile.DIRTYPE),
    "git": tar_member("vllm-0.17.1/.git/config"),
    "git, case": tar_member("vllm-0.17.1/a/.GIT/hooks/x"),
    "git, windows": tar_member("vllm-0.17.1/git~1/config"),
    "git, stream": tar_member("vllm-0.17.1/.git::$INDEX_ALLOCATION/config"),
    "git, dots": tar_member("vllm-0.17.1/.git. ./config"),
    "git, invisible": tar_member("vllm-0.17.1/.g\u200cit/config"),
    "newline": tar_member("vllm-0.17.1/a\nb"),
    "backslash": tar_member("vllm-0.17.1/..\\x"),
    "inner dot": tar_member("vllm-0.17.1/./x"),
    "empty part": tar_member("vllm-0.17.1//x"),
    "long part": tar_member("vllm-0.17.1/" + "x" * 256),
    "long path": tar_member("vllm-0.17.1/" + "x/" * 2100 + "x"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_sdist_is_refused(tmp_path: Path, case: str) -> None:
    path = sdist(tmp_path, make_tar([GOOD, HOSTILE[case]]))
    with pytest.raises(HostError) as caught:
        list(read_sdist(path))
    assert caught.value.code == "hostile-archive"
    assert "vllm-0.17.1.tar.gz" in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_a_file_in_the_place_of_a_folder_that_came_first(tmp_path: Path) -> None:
    inner = tar_member("vllm-0.17.1/a/b")
    path = sdist(tmp_path, make_tar([inner, tar_member("vllm-0.17.1/a")]))
    with pytest.raises(HostError, match="file and a folder"):
        list(read_sdist(path))


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (Limits(members=3), "more than 3"),
        (Limits(file_bytes=99), "100 bytes"),
        (Limits(total_bytes=399), "larger than 399"),
    ],
)
def test_bombs(tmp_path: Path, limits: Limits, what: str) -> None:
    members = [tar_member(f"vllm-0.17.1/{number}", b"x" * 100) for number in range(4)]
    path = sdist(tmp_path, make_tar(members))
    assert len(list(read_sdist(path))) == 4
    with pytest.raises(HostError, match=what) as caught:
        list(read_sdist(path, limits))
    assert caught.value.code == "hostile-archive"


def test_a_bomb_in_a_header_is_not_unpacked(tmp_path: Path) -> None:
    # A PAX header of gigabytes of zeros packs into nearly nothing; tarfile would read it whole.
    info = tarfile.TarInfo("pax")
    info.type = tarfile.XHDTYPE
    info.size = 2 << 30
    plain = info.tobuf(format=tarfile.GNU_FORMAT)
    path = sdist(tmp_path, gzip.compress(plain + bytes(4 << 20)))
    with pytest.raises(HostError, match="a header"):
        list(read_sdist(path))


def test_a_sparse_file_that_claims_a_terabyte(tmp_path: Path) -> None:
    info = tarfile.TarInfo("vllm-0.17.1/x")
    info.type = tarfile.GNUTYPE_SPARSE
    with pytest.raises(HostError):
        list(read_sdist(sdist(tmp_path, make_tar([(info, b"")]))))


@pytest.mark.parametrize("cut", [5, 100, 700])
def test_a_damaged_sdist_says_so(tmp_path: Path, cut: int) -> None:
    data = make_sdist()
    for broken in (data[:-cut], b"x" * cut, data[:20] + b"\xff" * cut + data[20 + cut :]):
        with pytest.raises(HostError) as caught:
            list(read_sdist(sdist(tmp_path, broken)))
        assert caught.value.code == "damaged-archive"


# Wheels


def wheel_members(data: bytes, limits: Limits | None = None) -> dict[str, Member]:
    """The Python files of a wheel."""
    found = read_wheel("x.whl", io.BytesIO(data), lambda name: name.endswith(".py"), limits)
    return {member.path: member for member in found}


def entry(name: str, mode: int = 0o100644) -> zipfile.ZipInfo:
    """A member with a Unix mode."""
    info = zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 6))
    info.external_attr = mode << 16
    return info


def test_a_wheels_chosen_members() -> None:
    members = wheel_members(make_wheel(compress=True, ballast=100_000))
    for path, (_, data) in TREE.items():
        if path.startswith("vllm/"):
            assert members[path].data == data
            assert members[path].mode == 0o100644
    assert members["vllm/model.py"].mtime == 1773224430
    assert "vllm/_C.abi3.so" not in members


@pytest.mark.parametrize(
    ("extra", "what"),
    [
        (entry("../x.py"), "safe path"),
        (entry("/x.py"), "safe path"),
        (entry(""), "safe path"),
        (entry("vllm/link.py", 0o120777), "is a link"),
        (entry("vllm/fifo.py", 0o010644), "is a link"),
        (entry("vllm/unlisted.py"), "RECORD lists"),
        (entry("vllm/__init__.py"), "twice"),
        (entry("other.dist-info/RECORD"), "more than once"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_hostile_wheel_is_refused(extra: zipfile.ZipInfo, what: str) -> None:
    with pytest.raises(HostError, match=what) as caught:
        wheel_members(make_wheel(compress=True, extra=[(extra, b"x")]))
    assert caught.value.code == "hostile-archive"


def test_a_member_that_is_not_what_record_says() -> None:
    lines = "".join(
        record_line(path, data if path != "vllm/model.py" else b"other")
        for path, (_, data) in TREE.items()
    )
    with pytest.raises(HostError, match="RECORD lists"):
        wheel_members(make_wheel(compress=True, record=lines))


def test_a_wheel_bomb() -> None:
    bomb = {**TREE, "vllm/zeros.py": (0o644, bytes(10_000_000))}
    assert len(make_wheel(compress=True, tree=bomb)) < 100_000
    with pytest.raises(HostError, match="10000000 bytes"):
        wheel_members(make_wheel(compress=True, tree=bomb), Limits(file_bytes=1_000_000))


def test_a_size_that_lies() -> None:
    data = make_wheel(compress=True, tree={"vllm/a.py": (0o644, b"a" * 1000)})
    with zipfile.ZipFile(io.BytesIO(data)) as wheel:
        start = wheel.start_dir
    broken = bytearray(data)
    broken[start + 24 : start + 28] = (10).to_bytes(4, "little")  # a.py is the first of all
    with pytest.raises(HostError) as caught:
        wheel_members(bytes(broken))
    assert caught.value.code in {"damaged-archive", "hostile-archive"}


def test_a_damaged_wheel_says_so() -> None:
    data = make_wheel(compress=True)
    for broken in (b"", data[:-30], b"x" * 1000, data[:200] + b"\xff" * 50 + data[250:]):
        with pytest.raises(HostError) as caught:
            wheel_members(broken)
        assert caught.value.code == "damaged-archive"
