"""Looking into wheels: an honest one is content, each kind of tampering has its finding."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from vpatch.errors import FindingError, HostError
from vpatch.wheel.build import BuiltWheel, build_wheel, seal_wheel
from vpatch.wheel.inspect import inspect_wheel
from vpatch.wheel.meta import RecordLine, parse_record, record_bytes, record_line
from vpatch.wheel.provenance import SCHEMA, parse_provenance
from wheel_lab import EDITS, change, contents, make_wheel, origin, rewritten

INFO = "vllm-9.9.9+kimi.3.dist-info"
Edit = Callable[[dict[str, bytes]], object]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def built(base: Path, tmp_path_factory: pytest.TempPathFactory) -> BuiltWheel:
    return build_wheel(base, EDITS, origin(), out=tmp_path_factory.mktemp("out"))


def test_an_honest_wheel_is_content(base: Path, built: BuiltWheel) -> None:
    inspection = inspect_wheel(built.path, base=base)
    assert inspection.ok
    assert inspection.findings == ()
    assert inspection.provenance is not None
    assert inspection.provenance.files == built.provenance.files == inspection.differences
    assert inspection.sha256 == built.sha256
    data = json.loads(json.dumps(inspection.as_dict()))
    assert data["provenance"] == built.provenance.as_dict()
    assert data["findings"] == []
    assert (data["name"], data["version"]) == ("vllm", "9.9.9+kimi.3")
    assert data["platform"] == "manylinux_2_31_x86_64"
    assert data["members"] == len(contents(built.path))


def test_an_upstream_wheel_is_not_ours(base: Path) -> None:
    inspection = inspect_wheel(base)
    assert [finding.code for finding in inspection.findings] == ["no-provenance"]
    assert inspection.provenance is None
    assert inspection.differences == ()


def _set(name: str, data: bytes) -> Edit:
    return lambda members: members.update({name: data})


def _sealed(edit: Edit) -> Edit:
    """An edit by somebody who also writes RECORD anew."""

    def edit_and_record(members: dict[str, bytes]) -> None:
        edit(members)
        record = f"{INFO}/RECORD"
        lines = [record_line(name, data) for name, data in members.items() if name != record]
        members[record] = record_bytes([*lines, RecordLine(record, "", "")])

    return edit_and_record


def _record(name: str, line: RecordLine | None) -> Edit:
    def edit(members: dict[str, bytes]) -> None:
        lines = parse_record(Path("x"), members[f"{INFO}/RECORD"])
        if line is None:
            del lines[name]
        else:
            lines[name] = line
        members[f"{INFO}/RECORD"] = record_bytes(lines.values())

    return edit


def _provenance(change_it: Callable[[dict[str, object]], object]) -> Edit:
    def edit(members: dict[str, bytes]) -> None:
        data = json.loads(members[f"{INFO}/vpatch.json"])
        change_it(data)
        members[f"{INFO}/vpatch.json"] = json.dumps(data).encode()

    return _sealed(edit)


KIMI = "vllm/models/kimi.py"


@pytest.mark.parametrize(
    ("edit", "file", "code"),
    [
        pytest.param(_set(KIMI, b"evil"), KIMI, "record-hash", id="changed"),
        pytest.param(_set("vllm/evil.py", b""), "vllm/evil.py", "record-missing", id="added"),
        pytest.param(lambda members: members.pop(KIMI), KIMI, "record-extra", id="removed"),
        pytest.param(_record(KIMI, None), KIMI, "record-missing", id="line-removed"),
        pytest.param(
            _record(KIMI, RecordLine(KIMI, "md5=x", "3")), KIMI, "record-hash", id="weak-hash"
        ),
        pytest.param(
            _record("x.py", RecordLine("x.py", "", "")), "x.py", "record-extra", id="line-added"
        ),
        pytest.param(
            _sealed(_set("vllm/models/deep.py", b"x")), "vllm/models/deep.py", "wrong-blob",
            id="patched-file",
        ),
        pytest.param(
            _sealed(_set("vllm/models/gone.py", b"x")), "vllm/models/gone.py", "not-removed",
            id="removed-file",
        ),
        pytest.param(
            _sealed(lambda members: members.pop("vllm/models/new/drafter.py")),
            "vllm/models/new/drafter.py", "not-there", id="added-file",
        ),
        pytest.param(
            _sealed(_set("vllm/_version.py", b"__version__ = '9.9.9'\n")), "vllm/_version.py",
            "version", id="version-file",
        ),
        pytest.param(
            _sealed(_set("vllm/_version.py", b"__version__ = 'x'\n")), "vllm/_version.py",
            "version", id="no-version",
        ),
        pytest.param(
            _sealed(_set("vllm/_version.py", b"print(1)\n")), "vllm/_version.py", "version",
            id="no-version-file",
        ),
        pytest.param(
            _provenance(lambda data: data.update(version="1")), f"{INFO}/vpatch.json", "version",
            id="provenance-version",
        ),
        pytest.param(
            _provenance(lambda data: data["pin"].update(label="kimi.4")),  # type: ignore[attr-defined]
            f"{INFO}/vpatch.json", "version", id="label",
        ),
        pytest.param(
            _provenance(lambda data: data["base"].update(version="?")),  # type: ignore[attr-defined]
            f"{INFO}/vpatch.json", "version", id="base-version",
        ),
        pytest.param(
            _provenance(lambda data: data.clear()), f"{INFO}/vpatch.json", "bad-provenance",
            id="no-provenance",
        ),
    ],
)  # fmt: skip
def test_tampering_is_found(
    built: BuiltWheel, tmp_path: Path, edit: Edit, file: str, code: str
) -> None:
    bad = rewritten(built.path, tmp_path / "bad", edit)
    findings = inspect_wheel(bad).findings
    assert [(finding.file, finding.code) for finding in findings] == [(file, code)]


def test_damage_of_one_member_is_one_finding(built: BuiltWheel, tmp_path: Path) -> None:
    raw = bytearray(built.path.read_bytes())
    with zipfile.ZipFile(built.path) as archive:
        info = archive.getinfo("vllm/models/deep.py")
    raw[info.header_offset + 30 + len(info.filename) + 2] ^= 1
    bad = tmp_path / built.path.name
    bad.write_bytes(raw)
    findings = inspect_wheel(bad).findings
    assert [(finding.file, finding.code) for finding in findings] == [
        ("vllm/models/deep.py", "damaged")
    ]


def test_the_base_shows_what_nothing_names(base: Path, built: BuiltWheel, tmp_path: Path) -> None:
    """Somebody who writes RECORD anew is found by the wheel that ours was made from."""
    edits: dict[str, Edit] = {
        KIMI: _set(KIMI, b"evil"),
        "vllm/evil.py": _set("vllm/evil.py", b""),
        "*.dist-info/entry_points.txt": _set(f"{INFO}/entry_points.txt", b"[console_scripts]\n"),
        f"{INFO}/METADATA": lambda members: members.update(
            {f"{INFO}/METADATA": members[f"{INFO}/METADATA"].replace(b"numpy", b"evil-numpy")}
        ),
    }
    for number, (file, edit) in enumerate(edits.items()):
        bad = rewritten(built.path, tmp_path / str(number), _sealed(edit))
        assert inspect_wheel(bad).ok
        findings = inspect_wheel(bad, base=base).findings
        assert [(finding.file, finding.code) for finding in findings] == [(file, "unnamed-change")]


def test_another_base_is_told(built: BuiltWheel, tmp_path: Path) -> None:
    other = make_wheel(tmp_path, more={"vllm/more.py": b""})
    findings = inspect_wheel(built.path, base=other).findings
    assert [finding.code for finding in findings] == ["wrong-base"]


def test_a_checksum_that_does_not_fit_is_a_finding(built: BuiltWheel, tmp_path: Path) -> None:
    copy = tmp_path / built.path.name
    copy.write_bytes(built.path.read_bytes())
    assert inspect_wheel(copy).ok
    beside = copy.with_name(copy.name + ".sha256")
    beside.write_text(f"{'0' * 64}  {copy.name}\n")
    assert [finding.code for finding in inspect_wheel(copy).findings] == ["checksum"]
    beside.write_text(f"{built.sha256}  {copy.name}\n")
    assert inspect_wheel(copy).ok


def test_what_is_no_wheel_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "vllm-1-py3-none-any.whl"
    path.write_bytes(b"no zip")
    with pytest.raises(FindingError, match="is not a zip"):
        inspect_wheel(path)
    with pytest.raises(HostError, match="cannot be read"):
        inspect_wheel(tmp_path / "none.whl")


def test_a_wheel_that_was_built_from_source(tmp_path: Path) -> None:
    """Upstream's setup.py appends its own label, and `_version.py` does not have it."""
    made = make_wheel(tmp_path, version="9.9.9+kimi.3.empty", source_version="9.9.9+kimi.3")
    data = contents(made)["vllm/models/deep.py"]
    edits = [change("vllm/models/deep.py", data, old=b"before"), change("setup.py", b"", old=b"x")]
    sealed = seal_wheel(made, edits, origin(), out=tmp_path / "out")
    assert sealed.path.name == made.name
    assert sealed.provenance.base.kind == "source"
    assert [file.path for file in sealed.provenance.files] == ["vllm/models/deep.py"]
    assert sealed.provenance.outside == ("setup.py",)
    assert inspect_wheel(sealed.path).findings == ()
    other = rewritten(
        sealed.path,
        tmp_path / "bad",
        lambda members: members.update({"vllm/_version.py": b"__version__ = '9.9.9'\n"}),
    )
    assert {finding.code for finding in inspect_wheel(other).findings} == {"record-hash", "version"}


# provenance as hostile input


def _good(built: BuiltWheel) -> dict[str, object]:
    return built.provenance.as_dict()


def test_provenance_comes_back_as_it_was_written(built: BuiltWheel) -> None:
    assert parse_provenance(built.provenance.to_json()).as_dict() == built.provenance.as_dict()


@pytest.mark.parametrize(
    "change_it",
    [
        lambda data: data.update(schema="vpatch/wheel/2"),
        lambda data: data.pop("base"),
        lambda data: data.update(patches=3),
        lambda data: data.update(patches=[3]),
        lambda data: data.update(outside=[3]),
        lambda data: data.update(version=["9"]),
        lambda data: data["patches"][0].update(sha256="x"),
        lambda data: data["patches"][0].pop("subject"),
        lambda data: data["files"][0].update(change="stolen"),
        lambda data: data["files"][0].update(after=""),
        lambda data: data["files"][0].update(path={}),
        lambda data: data["pin"].update(series_sha256="5"),
        lambda data: data["pin"].update(revision="one"),
        lambda data: data["pin"].update(trees={"kind": 1}),
        lambda data: data["base"].update(sha256=""),
        lambda data: data.update(tool="vpatch"),
    ],
)
def test_damaged_provenance_is_a_finding(
    built: BuiltWheel, change_it: Callable[[dict[str, object]], object]
) -> None:
    data = json.loads(json.dumps(_good(built)))
    assert data["schema"] == SCHEMA
    change_it(data)
    with pytest.raises(FindingError, match=r"vpatch\.json in the wheel cannot be read"):
        parse_provenance(json.dumps(data).encode())


@pytest.mark.parametrize("raw", [b"", b"[]", b"\xff", b"[" * 100_000, b"null", b"NaN"])
def test_what_is_not_provenance_at_all(raw: bytes) -> None:
    with pytest.raises(FindingError, match=r"vpatch\.json in the wheel cannot be read"):
        parse_provenance(raw)
