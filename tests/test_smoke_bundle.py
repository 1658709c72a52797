"""Smoke bundles: what is carried, how small, and that it unpacks on a bare host."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import bundle_lab as lab
from bundle_lab import exported, names, run, use_only, versions
from vpatch.errors import FindingError, HostError, UsageError
from vpatch.smoke import bundle_pack, bundle_unpack
from vpatch.smoke.bundle import Bundle
from vpatch.smoke.bundle_needs import Needs, find_needs
from vpatch.smoke.bundle_pieces import pieces
from vpatch.smoke.bundle_pip import resolve
from vpatch.smoke.bundle_rules import library, slimmed
from vpatch.smoke.bundle_target import Target, read_have

HERE = Target(lab.HERE)
BARE: Mapping[str, Version] = {}


@pytest.fixture(scope="module")
def simple(tmp_path_factory: pytest.TempPathFactory) -> str:
    return lab.universe(tmp_path_factory.mktemp("index"))


@pytest.fixture(autouse=True)
def only_this_index(simple: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_only(simple, monkeypatch)


def needs(have: Mapping[str, Version], target: Target = HERE, *more: str) -> Needs:
    texts = more or lab.VLLM_REQUIRES
    return find_needs([Requirement(text) for text in texts], have, target)


def carried(found: Needs) -> dict[str, str]:
    return {wheel.name: str(wheel.version) for wheel in found.carried}


def bundle(wheel: Path, folder: Path, cache: Path, have: Mapping[str, Version] = BARE) -> Bundle:
    return lab.bundle(wheel, folder, cache, have, lab.small_tool(cache / "tool", "leaf", "deep"))


# what is carried


def test_a_bare_host_gets_everything_but_what_the_smoke_does_not_need() -> None:
    found = needs(BARE)
    assert carried(found) == {
        "changing": "2.0",
        "leaf": "1.0",
        "numpy": "2.3.5",
        "nvidia-cublas-cu12": "12.8.4.1",
        "nvidia-cudnn-cu12": "9.10.2.21",
        "nvidia-nccl-cu12": "2.27.5",
        "steady": "1.5",
        "torch": "2.10.0",
        "triton": "3.6.0",
    }
    assert set(found.left_out) == {"flashinfer-python", "nvidia-cusolver-cu12"}
    assert found.from_host == {}


def test_markers_are_those_of_the_target_not_of_this_python() -> None:
    found = carried(needs(BARE, Target(lab.OTHER)))
    assert {"marked", "deep"} <= found.keys()


def test_the_hosts_torch_serves_with_its_own_libraries() -> None:
    found = needs(versions(torch="2.10.0+cu130"))
    assert found.from_host == {"torch": "2.10.0+cu130"}
    assert not {name for name in carried(found) if name.startswith(("nvidia", "triton", "torch"))}


def test_of_the_libraries_of_another_torch_the_host_serves_those_of_the_same_soname() -> None:
    have = versions(
        torch="2.11.0+cu130",
        triton="3.6.0",
        nvidia_cublas="13.1.0.3",
        nvidia_cudnn_cu13="9.19.0.56",
        nvidia_nccl_cu13="2.26.9",
    )
    found = needs(have)
    libraries = {name for name in carried(found) if name.startswith("nvidia")}
    assert libraries == {"nvidia-cublas-cu12", "nvidia-nccl-cu12"}
    assert found.from_host == {
        "nvidia-cudnn-cu12": "nvidia-cudnn-cu13 9.19.0.56",
        "triton": "3.6.0",
    }
    newer = needs({**have, "nvidia-nccl-cu13": Version("2.28.9")})
    assert newer.from_host["nvidia-nccl-cu12"] == "nvidia-nccl-cu13 2.28.9"


@pytest.mark.parametrize(
    ("version", "serves"),
    [
        ("1.2", True),
        ("0.9", False),  # what vLLM asks for is newer
        ("1.1", False),  # it asks for an older leaf than the one that is carried
        ("1.3", False),  # the index does not have it, so nobody knows what it asks for
    ],
)
def test_a_package_of_the_host_serves_only_where_both_sides_fit(version: str, serves: bool) -> None:
    found = needs(versions(steady=version), HERE, "steady>=1", "leaf>=1")
    assert ("steady" in found.from_host) is serves
    assert ("steady" in carried(found)) is not serves


def test_the_hosts_numpy_is_used_against_an_upper_bound() -> None:
    assert needs(versions(numpy="2.5.2")).from_host["numpy"] == "2.5.2"
    assert carried(needs(versions(numpy="1.26.4")))["numpy"] == "2.3.5"


def test_what_pip_cannot_choose_is_a_failure_with_its_reason() -> None:
    with pytest.raises(HostError, match="no-such-package") as caught:
        needs(BARE, HERE, "no-such-package>=1")
    assert caught.value.code == "resolve"


def test_a_requirement_with_an_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="an address of its own"):
        needs(BARE, HERE, f"leaf @ {tmp_path.as_uri()}/leaf-1.0-py3-none-any.whl")


def test_a_wheel_without_requirements_needs_nothing() -> None:
    assert resolve([], HERE) == {}


# what the tool needs beside it


def both(have: Mapping[str, Version], requires: list[str], *tool: str) -> Needs:
    wheel, own = (map(Requirement, texts) for texts in (requires, tool))
    return find_needs(wheel, have, HERE, own)


def test_what_only_the_tool_needs_is_told_apart() -> None:
    found = both(BARE, ["steady>=1"], "leaf", "changing", "marked; extra == 'dev'")
    assert carried(found) == {"steady": "1.5", "leaf": "1.0"}
    assert [wheel.name for wheel in found.tool] == ["changing"]


def test_the_tools_needs_count_for_what_the_host_serves() -> None:
    have = versions(steady="1.2", changing="2.0")
    assert both(have, ["steady>=1"]).from_host == {"steady": "1.2"}
    found = both(have, ["steady>=1"], "steady>=1.5", "changing")
    assert carried(found) == {"steady": "1.5", "leaf": "1.0"}
    assert found.from_host == {"changing": "2.0"}
    assert found.tool == ()


def test_a_tool_that_does_not_fit_the_wheel_is_refused_by_name() -> None:
    with pytest.raises(HostError) as caught:
        both(BARE, ["steady==1.5", "leaf>=1"], "changing", "leaf<1")
    assert "vpatch and the vLLM wheel do not fit" in caught.value.message
    assert caught.value.message.endswith(
        "vpatch requires leaf<1, the vLLM wheel comes with leaf 1.0"
    )
    with pytest.raises(HostError, match=r"do not fit.*steady==1\.1"):
        both(BARE, ["leaf>=1"], "steady==1.1")
    with pytest.raises(HostError) as caught:
        both(BARE, ["no-such-package"], "changing")
    assert "vpatch" not in caught.value.message


# tables


@pytest.mark.parametrize(
    ("distribution", "member", "left_out"),
    [
        ("vllm", "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", True),
        ("vllm", "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so", False),
        ("vllm", "vllm/vllm-rs", True),
        ("vllm", "vllm/third_party/deep_gemm/include/cute/x.hpp", True),
        ("vllm", "vllm/third_party/deep_gemm/_C.cpython-312-x86_64-linux-gnu.so", False),
        ("vllm", "vllm/third_party/deep_gemm/_C.cpython-313-x86_64-linux-gnu.so", True),
        ("vllm", "vllm/third_party/deep_gemm/_C_extension.abi3.so", False),
        ("vllm", "vllm/includes.py", False),
        ("torch", "torch/include/ATen/ATen.h", False),
        ("xgrammar", "xgrammar/lib/libxgrammar.a", True),
        ("xgrammar", "xgrammar/lib/libxgrammar.so", False),
        ("other", "vllm/vllm-rs", False),
    ],
)
def test_slimming(distribution: str, member: str, left_out: bool) -> None:
    assert (slimmed(distribution, member, "3.12") is not None) is left_out


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("nvidia-cublas", "cublas"),
        ("nvidia-cuda-runtime-cu12", "cuda-runtime"),
        ("nvidia-nvshmem-cu13", "nvshmem"),
        ("nvidia-ml-py", None),
        ("nvidia-cutlass-dsl", None),
        ("numpy", None),
    ],
)
def test_cuda_libraries_are_known_by_their_packages(name: str, family: str | None) -> None:
    found = library(name, Version("1"))
    assert (found.name if found else None) == family


def test_pip_list_is_read_and_nonsense_refused(tmp_path: Path) -> None:
    path = tmp_path / "have.json"
    rows = [{"name": "Hf_Xet", "version": "1.0"}, {"name": "old", "version": "2004d-odd"}]
    path.write_text(json.dumps(rows))
    assert read_have(path) == versions(hf_xet="1.0", old="0")
    for text in ("{", "[1]", '[{"name": "x"}]', '[{"name": 1, "version": "1"}]', "null"):
        path.write_text(text)
        with pytest.raises(UsageError, match="does not tell"):
            read_have(path)
    with pytest.raises(UsageError, match="No such file"):
        read_have(tmp_path / "missing.json")


@pytest.mark.parametrize("text", ["3", "2.7", "3.12.1.1", "--help", "3.12 "])
def test_a_target_is_a_python_3(text: str) -> None:
    with pytest.raises(UsageError, match="not a version of Python"):
        Target(text)


# the bundle


@pytest.fixture(scope="module")
def built(simple: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle for a host that has torch, with the cache that it was made with."""
    root = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_only(simple, monkeypatch)
        monkeypatch.setattr(bundle_pack, "_LARGE", 10_000)
        wheel = lab.vllm_wheel(root / "stock")
        bundle(wheel, root / "bundle", root / "cache", versions(torch="2.10.0"))
    return root


@pytest.fixture
def stock(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bundle:
    """A copy of that bundle and that cache for one test."""
    monkeypatch.setattr(bundle_pack, "_LARGE", 10_000)
    for name in ("stock", "bundle", "cache"):
        shutil.copytree(built / name, tmp_path / name)
    manifest = json.loads((tmp_path / "bundle/manifest.json").read_bytes())
    return Bundle(tmp_path / "bundle", manifest)


def test_the_manifest_tells_what_is_in_the_bundle_and_why(stock: Bundle) -> None:
    manifest = stock.manifest
    assert manifest["release"] == "v9.9.9"
    assert manifest["torch"] == {"version": "2.10.0", "from": "host"}
    assert manifest["pythonpath"] == ["vllm", "packages", "tool"]
    assert manifest["library_path"] == []
    assert "Hopper uses FlashAttention 3" in manifest["slimmed"]["vllm"].values()
    assert {path.name for path in (stock.folder / "files").iterdir()} == {
        file["name"] for file in manifest["files"]
    }
    assert stock.size == sum(p.stat().st_size for p in (stock.folder / "files").iterdir())


def test_it_unpacks_on_a_bare_host_and_what_it_prints_runs_it(
    stock: Bundle, tmp_path: Path
) -> None:
    result = run(stock.folder / "unpack.py", stock.folder / "manifest.json", tmp_path / "dest")
    assert result.returncode == 0, result.stderr
    environment = exported(result.stdout)
    assert environment["VLLM_USE_FLASHINFER_SAMPLER"] == "0"
    assert "LD_LIBRARY_PATH" not in environment
    check = (
        "import vllm, steady, os; print(vllm.NAME, steady.version, os.path.dirname(vllm.__file__))"
    )
    output = subprocess.run(
        [sys.executable, "-c", check],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert output[:2] == ["stock", "1.5"]
    site = Path(output[2])
    assert (site / "_C.abi3.so").read_bytes() == lab.LIBRARY
    assert not (site / "vllm_flash_attn/_vllm_fa2_C.abi3.so").exists()
    assert not (site / "third_party").exists()
    tool = site.parent / "bin/vllm-tool"
    assert os.access(tool, os.X_OK)
    assert environment["PATH"].startswith(str(tool.parent))


def test_a_carried_torch_brings_a_library_path(tmp_path: Path) -> None:
    have = versions(steady="1.5", nvidia_cudnn_cu13="9.19")
    made = bundle(lab.vllm_wheel(tmp_path), tmp_path / "b", tmp_path / "cache", have)
    assert made.manifest["torch"] == {"version": "2.10.0", "from": "bundle"}
    assert made.manifest["library_path"] == [
        "torch/nvidia/cublas/lib",
        "torch/nvidia/nccl/lib",
    ]
    result = run(made.folder / "unpack.py", made.folder / "manifest.json", tmp_path / "dest")
    paths = exported(result.stdout)["LD_LIBRARY_PATH"].split(":")
    assert Path(paths[0], "libcublas.so.12").is_file()
    assert not list((tmp_path / "dest").rglob("libtorch_cuda_linalg.so"))


def test_large_wheels_are_packed_where_it_pays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vpatch.smoke.bundle._LARGE", 100)
    made = bundle(lab.vllm_wheel(tmp_path), tmp_path / "b", tmp_path / "cache")
    kinds = {file["of"].split()[0]: file["kind"] for file in made.manifest["files"]}
    assert kinds["numpy"] == "tar.xz"
    assert kinds["nvidia-cublas-cu12"] == "wheel"
    result = run(made.folder / "unpack.py", made.folder / "manifest.json", tmp_path / "dest")
    assert result.returncode == 0, result.stderr
    (module,) = (tmp_path / "dest").rglob("numpy.py")
    assert module.read_bytes() == b"pi = 3\n" * 9000


def test_a_patched_wheel_changes_only_the_group_of_its_own(stock: Bundle, tmp_path: Path) -> None:
    files = {"vllm/model.py": b"NAME = 'patched'\n"}
    wheel = lab.vllm_wheel(tmp_path / "patched", files=files, local="+kimi.1")
    have = versions(torch="2.10.0")
    patched = bundle(wheel, tmp_path / "other", tmp_path / "cache", have)
    for group in ("vllm-libs", "packages", "tool", "tool-packages"):
        assert names(patched, group) == names(stock, group)
    assert names(patched, "vllm") != names(stock, "vllm")
    cuts = [pieces(one.folder, 20_000, tmp_path / "pieces") for one in (stock, patched)]
    new = {p.name for p in cuts[1].pieces} - {p.name for p in cuts[0].pieces}
    assert {name.rsplit("-", 2)[0] for name in new} == {"vllm"}
    results = [
        run(one.folder / "unpack.py", one.folder / "manifest.json", tmp_path / "dest")
        for one in (stock, patched)
    ]
    paths = [exported(result.stdout)["PYTHONPATH"].split(":") for result in results]
    assert paths[0][0] != paths[1][0]
    assert paths[0][1] == paths[1][1]
    assert Path(paths[1][0], "vllm/model.py").read_bytes() == files["vllm/model.py"]


def test_what_another_bundle_unpacked_is_neither_carried_nor_unpacked_again(
    stock: Bundle, tmp_path: Path
) -> None:
    dest = tmp_path / "dest"
    first = run(stock.folder / "unpack.py", stock.folder / "manifest.json", dest)
    files = {"vllm/model.py": b"NAME = 'patched'\n"}
    wheel = lab.vllm_wheel(tmp_path / "patched", files=files, local="+kimi.1")
    patched = bundle(wheel, tmp_path / "other", tmp_path / "cache", versions(torch="2.10.0"))
    for name in names(patched, "vllm-libs") + names(patched, "packages"):
        (patched.folder / "files" / name).unlink()
    second = run(patched.folder / "unpack.py", patched.folder / "manifest.json", dest)
    assert second.returncode == 0, second.stderr
    old, new = (
        Path(exported(result.stdout)["PYTHONPATH"].split(":")[0]) for result in (first, second)
    )
    assert old != new
    library = "vllm/_C.abi3.so"
    assert (old / library).samefile(new / library)
    assert (old / "vllm/model.py").read_text() == "NAME = 'stock'\n"
    assert (new / "vllm/model.py").read_text() == "NAME = 'patched'\n"
    assert os.access(new / "bin/vllm-tool", os.X_OK)
    # Where the other bundle's copy is gone, the file has to be there after all.
    (old / library).unlink()
    (new / library).unlink()
    (new / ".unpacked").unlink()
    third = run(patched.folder / "unpack.py", patched.folder / "manifest.json", dest)
    assert third.returncode == 4
    assert "is missing" in third.stderr


def test_a_file_that_two_wheels_hold_is_not_written_through_a_link(tmp_path: Path) -> None:
    """`nvidia/__init__.py` is in many wheels: a new one must not change an old folder's."""
    dest = tmp_path / "dest"
    wheels = [
        lab.lab_wheel(tmp_path, name, "1.0", files={"nvidia/__init__.py": text, f"{name}.py": b""})
        for name, text in (("one", b"first = 1\n"), ("two", b"second = 2\n"))
    ]
    manifest = manifest_for(wheels[0], tmp_path / "a")
    assert run(Path(bundle_unpack.__file__), manifest, dest).returncode == 0
    (old,) = dest.rglob("nvidia/__init__.py")
    both = manifest_for(wheels[1], tmp_path / "b")
    table = json.loads(both.read_text())
    table["files"] += json.loads(manifest.read_text())["files"]
    both.write_text(json.dumps(table))
    result = run(Path(bundle_unpack.__file__), both, dest)
    assert result.returncode == 0, result.stderr
    assert old.read_bytes() == b"first = 1\n"
    new = Path(exported(result.stdout)["PYTHONPATH"])
    assert (new / "nvidia/__init__.py").read_bytes() == b"second = 2\n"
    assert (new / "one.py").is_file()


def test_the_same_wheel_gives_the_same_bytes(stock: Bundle, tmp_path: Path) -> None:
    wheel = lab.vllm_wheel(tmp_path / "again")
    again = bundle(wheel, tmp_path / "b2", tmp_path / "cache2", versions(torch="2.10.0"))
    assert again.manifest == stock.manifest
    assert json.loads((again.folder / "manifest.json").read_bytes()) == again.manifest


def test_a_bundle_is_replaced_but_nothing_else_is(stock: Bundle, tmp_path: Path) -> None:
    (stock.folder / "files" / "left-over").write_bytes(b"x")
    wheel = lab.vllm_wheel(tmp_path / "stock")
    bundle(wheel, stock.folder, tmp_path / "cache", versions(torch="2.10.0"))
    assert not (stock.folder / "files" / "left-over").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="something else"):
        bundle(wheel, tmp_path / "mine", tmp_path / "cache")
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_a_wheel_that_lies_in_its_record_is_refused(tmp_path: Path) -> None:
    lie = {"vllm/model.py": b"NAME = 'honest'\n"}
    wheel = lab.lab_wheel(
        tmp_path, "vllm", "9.9.9", files=lab.VLLM_FILES, record=lie, requires=["leaf"]
    )
    with pytest.raises(FindingError, match=r"another vllm/model\.py"):
        bundle(wheel, tmp_path / "b", tmp_path / "cache")
    assert not (tmp_path / "b").exists()
    assert not list((tmp_path / "cache" / "packed").glob(".packing.*"))


def test_bytes_that_the_index_does_not_list_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaf = lab.lab_wheel(tmp_path / "w", "leaf", "1.0")
    monkeypatch.setenv("PIP_INDEX_URL", lab.publish(tmp_path / "simple", leaf))
    lab.lab_wheel(tmp_path / "w", "leaf", "1.0", files={"leaf.py": b"import evil\n"})
    wheel = lab.lab_wheel(tmp_path, "vllm", "9.9.9", files=lab.VLLM_FILES, requires=["leaf"])
    with pytest.raises(HostError):
        bundle(wheel, tmp_path / "b", tmp_path / "cache")


# pieces


def test_pieces_are_small_and_go_together_again(stock: Bundle, tmp_path: Path) -> None:
    cut = pieces(stock.folder, 7_000, tmp_path / "pieces")
    sizes = {piece.name: piece.size for piece in cut.pieces}
    assert {path.name: path.stat().st_size for path in cut.folder.iterdir()} == sizes
    assert sum(sizes.values()) == stock.size
    assert max(sizes.values()) == 7_000
    assert sorted(name for load in cut.loads for name in load) == sorted(sizes)
    assert all(sum(sizes[name] for name in load) <= 7_000 for load in cut.loads)
    host = tmp_path / "host"
    host.mkdir()
    for name in ("manifest.json", "pieces.json", "unpack.py"):
        shutil.copy(stock.folder / name, host)
    result = run(host / "unpack.py", host / "manifest.json", host / "d", "--from", cut.folder)
    assert result.returncode == 0, result.stderr
    assert next(iter(host.rglob("_C.abi3.so"))).read_bytes() == lab.LIBRARY
    assert not list((host / "d").glob(".*"))


@pytest.mark.parametrize("spoil", ["damage", "shorten", "remove"])
def test_a_piece_that_is_not_right_unpacks_nothing(
    stock: Bundle, tmp_path: Path, spoil: str
) -> None:
    cut = pieces(stock.folder, 20_000, tmp_path / "pieces")
    victim = cut.folder / next(p.name for p in cut.pieces if p.group == "vllm-libs")
    data = victim.read_bytes()
    if spoil == "damage":
        victim.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    elif spoil == "shorten":
        victim.write_bytes(data[:-1])
    else:
        victim.unlink()
    host = tmp_path / "host"
    host.mkdir()
    for name in ("manifest.json", "pieces.json", "unpack.py"):
        shutil.copy(stock.folder / name, host)
    result = run(host / "unpack.py", host / "manifest.json", host / "d", "--from", cut.folder)
    assert result.returncode == 4
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert ("missing" if spoil == "remove" else "damaged") in line
    assert list((host / "d").iterdir()) == []


def test_only_a_bundle_is_cut(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a smoke bundle"):
        pieces(tmp_path, 10, tmp_path / "p")
    with pytest.raises(UsageError, match="0 bytes"):
        pieces(tmp_path, 0, tmp_path / "p")


# the script by itself


def manifest_for(path: Path, folder: Path, **changes: Any) -> Path:
    import hashlib  # noqa: PLC0415

    (folder / "files").mkdir(parents=True)
    shutil.copy(path, folder / "files" / path.name)
    data = path.read_bytes()
    file = {
        "name": path.name,
        "folder": "packages",
        "kind": "wheel",
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    manifest = {
        "schema": bundle_unpack.SCHEMA,
        "python": lab.HERE,
        "pythonpath": ["packages"],
        "library_path": [],
        "environment": {},
        "torch": {"from": "host"},
        "files": [{**file, **changes}],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder / "manifest.json"


@pytest.mark.parametrize("member", ["../evil.py", "/evil.py", "a/../../evil.py", "a\\b.py"])
def test_the_script_refuses_a_member_that_leaves_the_folder(tmp_path: Path, member: str) -> None:
    wheel = tmp_path / "w-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(member, b"evil")
    manifest = manifest_for(wheel, tmp_path / "b")
    result = run(Path(bundle_unpack.__file__), manifest, tmp_path / "dest")
    assert result.returncode == 4
    assert "leaves the folder" in result.stderr
    assert not list(tmp_path.rglob("evil.py"))


@pytest.mark.parametrize("name", ["../x.whl", "/etc/passwd", "", ".hidden"])
def test_the_script_refuses_a_manifest_that_names_paths(tmp_path: Path, name: str) -> None:
    manifest = manifest_for(lab.lab_wheel(tmp_path, "leaf", "1.0"), tmp_path / "b", name=name)
    result = run(Path(bundle_unpack.__file__), manifest, tmp_path / "dest")
    assert result.returncode == 4
    assert "names a file by a path" in result.stderr


def test_the_script_refuses_another_python(tmp_path: Path) -> None:
    manifest = manifest_for(lab.lab_wheel(tmp_path, "leaf", "1.0"), tmp_path / "b")
    manifest.write_text(manifest.read_text().replace(f'"{lab.HERE}"', f'"{lab.OTHER}"'))
    result = run(Path(bundle_unpack.__file__), manifest, tmp_path / "dest")
    assert result.returncode == 4
    assert f"is for Python {lab.OTHER}, this is {lab.HERE}" in result.stderr


def test_headers_are_not_unpacked_and_purelib_is_the_site_folder() -> None:
    assert bundle_unpack.place("x-1.data/purelib/x/y.py") == "x/y.py"
    assert bundle_unpack.place("x-1.data/scripts/x") == "bin/x"
    assert bundle_unpack.place("x-1.data/headers/x.h") is None
    assert bundle_unpack.place("x/y.py") == "x/y.py"
