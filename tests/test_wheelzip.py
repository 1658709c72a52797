"""The zip layer: what is read is what every unpacker would see, and what is written is the same
bytes everywhere."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vpatch.errors import FindingError, HostError
from vpatch.wheel.directory import read_archive
from vpatch.wheel.splice import Kept, Moved, Part, Stored, splice
from vpatch.wheel.zip import MAX16, MAX32, Archive
from wheel_lab import make_wheel

TEXT = b"some text that deflates well, some text that deflates well\n" * 20


class _Pipe(io.RawIOBase):
    """A stream that cannot seek: zipfile then writes data descriptors."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        return self.file.write(bytes(data))


def write_zip(path: Path, members: dict[str, bytes], *, comment: bytes = b"") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        archive.comment = comment
    return path


def two_members(folder: Path) -> bytearray:
    """A zip of two stored members: offsets that a test can point at."""
    path = folder / "two.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("a/one.py"), b"1" * 40)
        archive.writestr(zipfile.ZipInfo("a/two.py"), b"2" * 40)
    return bytearray(path.read_bytes())


def save(folder: Path, raw: bytes) -> Path:
    path = folder / "bad.whl"
    path.write_bytes(raw)
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(tmp_path_factory.mktemp("wheel"))


# reading


def test_a_real_wheel_is_read_as_zipfile_reads_it(wheel: Path) -> None:
    archive = read_archive(wheel)
    with zipfile.ZipFile(wheel) as theirs:
        assert sorted(archive.by_name) == sorted(theirs.namelist())
        for info in theirs.infolist():
            member = archive.by_name[info.filename]
            assert archive.read(info.filename) == theirs.read(info)
            assert (member.start, member.external) == (info.header_offset, info.external_attr)


def test_members_tile_the_file(wheel: Path) -> None:
    members = read_archive(wheel).members
    assert members[0].start == 0
    assert all(one.end == two.start for one, two in pairwise(members))


def test_data_descriptors_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "piped.whl"
    with path.open("wb") as file, zipfile.ZipFile(_Pipe(file), "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("a.txt", TEXT)
        with out.open("b.txt", "w", force_zip64=True) as member:
            member.write(TEXT)
    archive = read_archive(path)
    assert [archive.read(name) for name in ("a.txt", "b.txt")] == [TEXT, TEXT]


def test_zip64_members_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "zip64.whl"
    with zipfile.ZipFile(path, "w") as out, out.open("a.txt", "w", force_zip64=True) as member:
        member.write(TEXT)
    assert read_archive(path).read("a.txt") == TEXT


def test_names_beyond_ascii_comments_and_folders_are_understood(tmp_path: Path) -> None:
    members = {"f/": b"", "f/\N{SNOWMAN}.txt": TEXT, "f/empty": b""}
    archive = read_archive(write_zip(tmp_path / "x.whl", members, comment=b"PK a comment"))
    assert {name: archive.read(name) for name in archive.by_name} == members


def test_an_empty_zip_has_no_members(tmp_path: Path) -> None:
    assert read_archive(write_zip(tmp_path / "x.whl", {})).members == ()


def test_a_missing_file_is_the_hosts_failure(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="cannot be read: No such file"):
        read_archive(tmp_path / "none.whl")


# hostile names


@pytest.mark.parametrize(
    "name",
    [
        "../x", "a/../../x", "/x", "a//b", "./x", "a/.", "a\\b", "C:x", "a\nb", "",
        "a/../x/",
    ],
)  # fmt: skip
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    good = write_zip(tmp_path / "x.whl", {"placeholder": b""}).read_bytes()
    raw = _renamed(good, b"placeholder", name.encode())
    with pytest.raises(FindingError, match="leaves the folder"):
        read_archive(save(tmp_path, raw))


def _renamed(raw: bytes, old: bytes, new: bytes) -> bytes:
    """A zip of one member with another name in both headers, all lengths and offsets right."""
    directory = raw.rindex(b"PK\x01\x02")
    end = raw.rindex(b"PK\x05\x06")
    shift = len(new) - len(old)
    local = bytearray(raw[:directory].replace(old, new))
    struct.pack_into("<H", local, 26, len(new))
    central = bytearray(raw[directory:end].replace(old, new))
    struct.pack_into("<H", central, 28, len(new))
    tail = bytearray(raw[end:])
    struct.pack_into("<2I", tail, 12, len(central), directory + shift)
    return bytes(local + central + tail)


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    raw = bytes(two_members(tmp_path)).replace(b"a/two.py", b"a/one.py")
    with pytest.raises(FindingError, match="two members of one name: a/one"):
        read_archive(save(tmp_path, raw))


def test_a_file_that_is_also_a_folder_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.whl", {"a": b"1", "a/b": b"2"})
    with pytest.raises(FindingError, match="a file and a folder: a"):
        read_archive(path)


def test_a_folder_with_contents_is_refused(tmp_path: Path) -> None:
    raw = bytes(two_members(tmp_path)).replace(b"a/two.py", b"a/two.p/")
    with pytest.raises(FindingError, match="folder with contents"):
        read_archive(save(tmp_path, raw))


def test_a_second_name_in_an_extra_field_is_refused(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("a.py")
    info.extra = struct.pack("<2H", 0x7075, 9) + b"\1" + b"\0" * 4 + b"b.py"
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
        archive.writestr(info, b"")
    with pytest.raises(FindingError, match="a second name"):
        read_archive(tmp_path / "x.whl")


# hostile structure: (what is done to a good zip, what is said about it)

LOCAL = 30 + 8 + 40  # a whole member of two_members
Spoil = Callable[[bytearray], bytes]


def _set(offset: int, form: str, value: int, *, central: int | None = None) -> Spoil:
    def spoil(raw: bytearray) -> bytes:
        place = offset
        if central is not None:
            place += bytes(raw).index(b"PK\x01\x02") + central * (46 + 8)
        struct.pack_into(form, raw, place, value)
        return bytes(raw)

    return spoil


def _set_both(local: int, central: int, form: str, value: int) -> Spoil:
    def spoil(raw: bytearray) -> bytes:
        _set(local, form, value)(raw)
        return _set(central, form, value, central=0)(raw)

    return spoil


def _end(raw: bytes | bytearray) -> int:
    return raw.rindex(b"PK\x05\x06")


def _with_gap(raw: bytearray) -> bytes:
    """A stale member between two good ones that the directory does not know."""
    stale = bytes(raw[:LOCAL])
    out = bytearray(raw[:LOCAL] + stale + raw[LOCAL:])
    struct.pack_into("<I", out, _end(out) + 16, 3 * LOCAL)
    directory = 3 * LOCAL
    struct.pack_into("<I", out, directory + 54 + 42, 2 * LOCAL)
    return bytes(out)


def _before_directory(raw: bytearray) -> bytes:
    out = bytearray(raw[: 2 * LOCAL] + b"hidden" + raw[2 * LOCAL :])
    struct.pack_into("<I", out, _end(out) + 16, 2 * LOCAL + 6)
    return bytes(out)


def _two_ends(raw: bytearray) -> bytes:
    end = raw[_end(raw) :]
    struct.pack_into("<H", raw, len(raw) - 2, len(end))
    return bytes(raw + end)


def _locator(raw: bytearray) -> bytes:
    end = _end(raw)
    return bytes(raw[:end]) + struct.pack("<4sIQI", b"PK\x06\x07", 0, 5, 1) + bytes(raw[end:])


def _zip64_end(raw: bytearray, *, count: int) -> bytes:
    end = _end(raw)
    size, offset = struct.unpack_from("<2I", raw, end + 12)
    record = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, end, 1)
    return bytes(raw[:end]) + record + locator + bytes(raw[end:])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(lambda _: b"", "is not a zip", id="empty"),
        pytest.param(lambda _: b"no zip at all" * 9, "is not a zip", id="no-zip"),
        pytest.param(lambda raw: bytes(raw[:-5]), "is truncated", id="truncated-end"),
        pytest.param(lambda raw: bytes(raw[:LOCAL]), "is truncated", id="truncated-half"),
        pytest.param(lambda raw: bytes(raw) + b"x", "is truncated", id="bytes-behind"),
        pytest.param(lambda raw: b"x" + bytes(raw), "does not lie where", id="bytes-before"),
        pytest.param(_two_ends, "two zip directories", id="two-ends"),
        pytest.param(_with_gap, "belong to no member, behind a/one.py", id="stale-member"),
        pytest.param(_before_directory, "belong to no member", id="hidden-at-the-end"),
        pytest.param(_set(42, "<I", 0, central=1), "overlap", id="two-entries-one-header"),
        pytest.param(_set(42, "<I", 20, central=1), "overlap", id="into-another"),
        pytest.param(_set(42, "<I", 10**8, central=1), "belong to no member", id="far"),
        pytest.param(_set(42, "<I", 1, central=0), "begins with bytes", id="first-not-at-0"),
        pytest.param(_set(30, "<B", 98), "contradicts", id="local-name"),
        pytest.param(_set(14, "<I", 7), "contradicts", id="local-crc"),
        pytest.param(_set(22, "<I", 41), "contradicts", id="local-size"),
        pytest.param(_set(8, "<H", 8), "contradicts", id="local-method"),
        pytest.param(_set(6, "<H", 8), "contradicts", id="local-flags"),
        pytest.param(_set_both(6, 8, "<H", 1), "encrypted", id="encrypted"),
        pytest.param(_set_both(6, 8, "<H", 0x2000), "encrypted", id="masked-headers"),
        pytest.param(_set_both(8, 10, "<H", 12), "method 12", id="bzip2"),
        pytest.param(_set(6, "<H", 64, central=0), "unknown kind", id="newer-zip"),
        pytest.param(_set(4, "<H", 64), "contradicts", id="newer-zip-locally"),
        pytest.param(_set(24, "<I", 99, central=0), "impossible header", id="stored-sizes"),
        pytest.param(_set(34, "<H", 1, central=0), "impossible header", id="other-disk"),
        pytest.param(_set(28, "<H", 9999, central=1), "damaged directory", id="long-name"),
        pytest.param(_set(0, "<I", 0, central=1), "damaged directory", id="no-magic"),
        pytest.param(_set_both(28, 30, "<H", 4), "damaged|contradicts", id="extra-length"),
        pytest.param(_locator, "place that cannot be", id="locator"),
        pytest.param(lambda raw: _zip64_end(raw, count=1), "contradict", id="zip64-count"),
        pytest.param(_set_both(18, 20, "<I", MAX32), "without its zip64", id="no-zip64-size"),
    ],
)
def test_structures_that_readers_see_differently_are_refused(
    tmp_path: Path, spoil: Spoil, said: str
) -> None:
    raw = two_members(tmp_path)
    assert read_archive(save(tmp_path, bytes(raw))).read("a/two.py") == b"2" * 40
    with pytest.raises(FindingError, match=said) as caught:
        read_archive(save(tmp_path, spoil(raw)))
    assert caught.value.message.startswith("bad.whl ")
    assert caught.value.hint


def test_a_zip64_end_that_agrees_is_accepted(tmp_path: Path) -> None:
    path = save(tmp_path, _zip64_end(two_members(tmp_path), count=2))
    assert len(read_archive(path).members) == 2


@pytest.mark.parametrize(("offset", "value"), [(8, 1), (8, 3), (12, 5), (16, 5), (4, 1)])
def test_end_records_that_miscount_are_refused(tmp_path: Path, offset: int, value: int) -> None:
    raw = two_members(tmp_path)
    struct.pack_into("<H", raw, _end(raw) + offset, value)
    with pytest.raises(FindingError):
        read_archive(save(tmp_path, bytes(raw)))


def test_a_directory_with_fewer_entries_than_bytes_is_refused(tmp_path: Path) -> None:
    raw = two_members(tmp_path)
    struct.pack_into("<2H", raw, _end(raw) + 8, 1, 1)
    with pytest.raises(FindingError, match="more directory than it has members"):
        read_archive(save(tmp_path, bytes(raw)))


# damaged contents


def test_a_wrong_crc_is_found_when_the_member_is_read(tmp_path: Path) -> None:
    raw = two_members(tmp_path)
    raw[LOCAL + 30 + 8] ^= 1
    archive = read_archive(save(tmp_path, bytes(raw)))
    assert archive.read("a/one.py") == b"1" * 40
    with pytest.raises(FindingError, match=r"two\.py has a wrong size or CRC"):
        archive.read("a/two.py")


@pytest.mark.parametrize(("claimed", "said"), [(10, "wrong size"), (10_000_000, "wrong size")])
def test_a_member_that_lies_about_its_size_is_cut_off(
    tmp_path: Path, claimed: int, said: str
) -> None:
    data = b"\0" * 5_000_000
    path = write_zip(tmp_path / "bomb.whl", {"a.py": data})
    raw = bytearray(path.read_bytes())
    struct.pack_into("<I", raw, 22, claimed)
    struct.pack_into("<I", raw, raw.index(b"PK\x01\x02") + 24, claimed)
    archive = read_archive(save(tmp_path, bytes(raw)))
    pieces: list[bytes] = []
    with pytest.raises(FindingError, match=said):
        pieces.extend(archive.chunks(archive.by_name["a.py"]))
    assert sum(map(len, pieces)) <= claimed


def test_members_too_large_for_memory_are_refused(tmp_path: Path) -> None:
    raw = two_members(tmp_path)
    archive = read_archive(save(tmp_path, bytes(raw)))
    huge = vars(archive.by_name["a/one.py"]) | {"size": 1 << 40}
    lying = Archive(archive.path, archive.size, (type(archive.members[0])(**huge),))
    with pytest.raises(FindingError, match="too many"):
        lying.read("a/one.py")


def one_member(folder: Path, data: bytes, *, crc: int, size: int) -> Path:
    """A zip whose only member is this deflate stream, whatever it is."""
    sizes = (crc, len(data), size)
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 8, 0, 33, *sizes, 1, 0) + b"m" + data
    head = (20, 20, 0, 8, 0, 33, *sizes, 1, 0, 0, 0, 0, 0, 0)
    central = struct.pack("<4s6H3I5H2I", b"PK\1\2", *head) + b"m"
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(central), len(local), 0)
    return save(folder, local + central + end)


def test_deflate_data_that_end_early_or_late_are_found(tmp_path: Path) -> None:
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = deflater.compress(TEXT) + deflater.flush()
    facts = {"crc": zlib.crc32(TEXT), "size": len(TEXT)}
    assert read_archive(one_member(tmp_path, packed, **facts)).read("m") == TEXT
    for data in (packed + b"x", packed + packed, packed[:-1], packed[:-9], b"\xff" * 9, b""):
        archive = read_archive(one_member(tmp_path, data, **facts))
        with pytest.raises(FindingError, match="is damaged"):
            archive.read("m")


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), min_size=1, max_size=4))
def test_damage_anywhere_is_a_finding_or_seen_by_zipfile_alike(
    tmp_path: Path, edits: list[tuple[int, int]]
) -> None:
    path = tmp_path / "fuzz.whl"
    if not (tmp_path / "good.whl").exists():
        write_zip(tmp_path / "good.whl", {f"a/{n}.py": TEXT * n for n in range(4)})
    raw = bytearray((tmp_path / "good.whl").read_bytes())
    for place, value in edits:
        raw[place % len(raw)] = value
    path.write_bytes(raw)
    try:
        archive = read_archive(path)
        ours = {member.name: archive.read(member.name) for member in archive.members}
    except FindingError:
        return
    with zipfile.ZipFile(path) as theirs:
        assert ours == {name: theirs.read(name) for name in theirs.namelist()}


# writing


def _splice(base: Path, parts: list[Part], output: Path, expected: str | None = None) -> str:
    return splice(read_archive(base), parts, output, expected_sha256=expected).sha256


def test_kept_members_keep_their_bytes(wheel: Path, tmp_path: Path) -> None:
    archive = read_archive(wheel)
    kept = [m for m in archive.members if m.name != "vllm/config.json"]
    parts: list[Part] = [Kept(member) for member in kept]
    parts.insert(3, Stored("vllm/new.py", b"x = 1\n", 0o755))
    result = splice(archive, parts, tmp_path / "out.whl", expected_sha256=None)
    raw, base = (tmp_path / "out.whl").read_bytes(), wheel.read_bytes()
    assert result.sha256 == hashlib.sha256(raw).hexdigest()
    assert result.base_sha256 == hashlib.sha256(base).hexdigest()
    assert result.size == len(raw)
    out = read_archive(tmp_path / "out.whl")
    assert [m.name for m in out.members] == [
        *(m.name for m in kept[:3]), "vllm/new.py", *(m.name for m in kept[3:]),
    ]  # fmt: skip
    for member in kept:
        copy = out.by_name[member.name]
        assert raw[copy.start : copy.end] == base[member.start : member.end]
    new = out.by_name["vllm/new.py"]
    assert (new.method, new.mode, out.read("vllm/new.py")) == (0, 0o100755, b"x = 1\n")
    with zipfile.ZipFile(tmp_path / "out.whl") as theirs:
        assert theirs.testzip() is None
        assert theirs.getinfo("vllm/new.py").date_time == (1980, 1, 1, 0, 0, 0)


@pytest.mark.parametrize("dropped", [0, 2, -1])
def test_the_hash_is_right_wherever_the_output_leaves_the_base(
    wheel: Path, tmp_path: Path, dropped: int
) -> None:
    members = list(read_archive(wheel).members)
    del members[dropped]
    sha256 = _splice(wheel, [Kept(member) for member in members], tmp_path / "out.whl")
    assert sha256 == hashlib.sha256((tmp_path / "out.whl").read_bytes()).hexdigest()


def test_a_moved_member_keeps_its_compressed_data(wheel: Path, tmp_path: Path) -> None:
    archive = read_archive(wheel)
    member = archive.by_name["vllm/config.json"]
    _splice(wheel, [Moved(member, "vllm/\N{SNOWMAN}/conf.json")], tmp_path / "out.whl")
    out = read_archive(tmp_path / "out.whl")
    moved = out.by_name["vllm/\N{SNOWMAN}/conf.json"]
    assert out.read(moved.name) == archive.read("vllm/config.json")
    assert (moved.method, moved.crc, moved.external) == (8, member.crc, member.external)
    with zipfile.ZipFile(tmp_path / "out.whl") as theirs:
        assert theirs.namelist() == [moved.name]


def test_members_with_descriptors_and_zip64_can_be_kept_and_moved(tmp_path: Path) -> None:
    base = tmp_path / "base.whl"
    with base.open("wb") as file, zipfile.ZipFile(_Pipe(file), "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("a", TEXT)
        with out.open("b", "w", force_zip64=True) as member:
            member.write(TEXT)
    members = read_archive(base).by_name
    parts: list[Part] = [Kept(members["a"]), Moved(members["b"], "c")]
    _splice(base, parts, tmp_path / "one.whl")
    _splice(base, [Moved(members["a"], "d"), Kept(members["b"])], tmp_path / "two.whl")
    for path, names in (("one.whl", ["a", "c"]), ("two.whl", ["d", "b"])):
        archive = read_archive(tmp_path / path)
        assert [archive.read(name) for name in names] == [TEXT, TEXT]
        with zipfile.ZipFile(tmp_path / path) as theirs:
            assert theirs.testzip() is None


def test_a_base_of_another_hash_leaves_nothing(wheel: Path, tmp_path: Path) -> None:
    kept: list[Part] = [Kept(member) for member in read_archive(wheel).members]
    with pytest.raises(HostError, match="its sha256 is") as caught:
        _splice(wheel, kept, tmp_path / "out.whl", "0" * 64)
    assert caught.value.code == "hash-mismatch"
    assert list(tmp_path.glob("*.whl*")) == []
    assert list(tmp_path.glob(".*.whl*")) == []


def test_an_output_that_is_there_survives_a_failure(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out.whl").write_bytes(b"the one before")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HostError, match="No space left on device"):
        _splice(wheel, [], tmp_path / "out.whl")
    assert (tmp_path / "out.whl").read_bytes() == b"the one before"
    assert [path.name for path in tmp_path.glob("*out.whl*")] == ["out.whl"]


def test_parts_out_of_order_are_a_bug_of_ours(wheel: Path, tmp_path: Path) -> None:
    first, second, *_ = read_archive(wheel).members
    with pytest.raises(ValueError, match="order"):
        _splice(wheel, [Kept(second), Kept(first)], tmp_path / "out.whl")


def test_the_output_does_not_depend_on_umask_or_time(wheel: Path, tmp_path: Path) -> None:
    parts: list[Part] = [Kept(m) for m in read_archive(wheel).members[:2]]
    parts.append(Stored("x", b"1", 0o644))
    one = _splice(wheel, parts, tmp_path / "a.whl")
    before = os.umask(0o077)
    try:
        two = _splice(wheel, parts, tmp_path / "b.whl")
    finally:
        os.umask(before)
    assert one == two
    assert (tmp_path / "b.whl").stat().st_mode & 0o777 == 0o600


def test_an_interrupted_splice_leaves_nothing_and_can_be_run_again(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[Part] = [Kept(member) for member in read_archive(wheel).members]

    def interrupted(path: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _splice(wheel, parts, tmp_path / "out.whl")
    assert list(tmp_path.glob("*out.whl*")) == []
    _splice(wheel, parts, tmp_path / "out.whl")
    assert len(read_archive(tmp_path / "out.whl").members) == len(parts)


@pytest.mark.slow
def test_more_members_than_a_plain_zip_can_count(tmp_path: Path) -> None:
    base = write_zip(tmp_path / "base.whl", {"a": b""})
    parts: list[Part] = [Stored(f"f/{number}", b"", 0o644) for number in range(MAX16 + 5)]
    _splice(base, parts, tmp_path / "out.whl")
    assert len(read_archive(tmp_path / "out.whl").members) == MAX16 + 5
    with zipfile.ZipFile(tmp_path / "out.whl") as theirs:
        assert len(theirs.namelist()) == MAX16 + 5


@pytest.mark.slow
def test_offsets_and_sizes_beyond_four_gigabytes(tmp_path: Path) -> None:
    size = MAX32 + 1000
    base = tmp_path / "base.whl"
    # The hole in the file is the member's data: zeros that no disk has to hold.
    crc = 0
    for _ in range(size >> 20):
        crc = zlib.crc32(bytes(1 << 20), crc)
    crc = zlib.crc32(bytes(size & ((1 << 20) - 1)), crc)
    extra = struct.pack("<2H2Q", 1, 16, size, size)
    head = struct.pack("<4s5H3I2H", b"PK\3\4", 45, 0, 0, 0, 33, crc, MAX32, MAX32, 1, 20)
    entry = struct.pack(
        "<4s6H3I5H2I", b"PK\1\2", 45, 45, 0, 0, 0, 33, crc, MAX32, MAX32, 1, 20, 0, 0, 0, 0, 0
    )
    offset = len(head) + 1 + len(extra) + size
    central = entry + b"b" + extra
    with base.open("wb") as file:
        file.write(head + b"b" + extra)
        file.seek(offset)
        file.write(central)
        end = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, len(central), offset)
        end += struct.pack("<4sIQI", b"PK\6\7", 0, offset + len(central), 1)
        file.write(end + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(central), MAX32, 0))
    member = read_archive(base).by_name["b"]
    output = tmp_path / "out.whl"
    try:
        _splice(base, [Moved(member, "moved"), Stored("behind", TEXT, 0o644)], output)
        archive = read_archive(output)
        assert archive.by_name["behind"].start > MAX32
        assert archive.read("behind") == TEXT
        with zipfile.ZipFile(output) as theirs:
            assert theirs.read("behind") == TEXT
            assert theirs.getinfo("moved").file_size == size
    finally:
        output.unlink(missing_ok=True)


@pytest.mark.slow
def test_memory_stays_constant(tmp_path: Path) -> None:
    base = tmp_path / "base.whl"
    with zipfile.ZipFile(base, "w", zipfile.ZIP_STORED) as out, out.open("big", "w") as member:
        for _ in range(400):
            member.write(os.urandom(1 << 20))
    code = """
import sys
from pathlib import Path
from vpatch.wheel.directory import read_archive
from vpatch.wheel.splice import Kept, splice
base = read_archive(Path(sys.argv[1]))
splice(base, [Kept(m) for m in base.members], Path(sys.argv[2]), expected_sha256=None)
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""
    command = [sys.executable, "-c", code, str(base), str(tmp_path / "out.whl")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) < 100_000
