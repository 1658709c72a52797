"""Unpacks a smoke bundle on a GPU host: one file, the standard library, no network.

    python3 unpack.py MANIFEST DEST [--from FOLDER]...

It looks beside MANIFEST and in each FOLDER for the bundle's files, or for the pieces that they
were cut into; verifies each file's sha256; unpacks every wheel below DEST; and prints `export`
lines with the PYTHONPATH and LD_LIBRARY_PATH to use: eval "$(python3 unpack.py ...)". What another
bundle already unpacked below the same DEST is used again, and needs not be carried again. If it
cannot: one sentence, exit 4.

Run it with the Python that will run vLLM.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import shutil
import site
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

SCHEMA = "vpatch/smoke-bundle/1"
PIECES_SCHEMA = "vpatch/smoke-pieces/1"
_CHUNK = 1 << 20
_EXECUTABLE = 0o111
_DONE = ".unpacked"  # in a folder that is whole: {sha256 of a file: [what it unpacked to]}


class UnpackError(Exception):
    """One sentence for the person who runs this."""


def place(member: str) -> str | None:
    """Where a wheel's member belongs below a site folder.

    Returns:
        Its path; None for a file that nothing imports (headers). Scripts go to ``bin``.

    Raises:
        UnpackError: The path would leave the folder.
    """
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or "\\" in member:
        raise UnpackError(f"a member's path leaves the folder: {member!r}")
    if not path.parts or not path.parts[0].endswith(".data"):
        return str(path)
    kind, rest = path.parts[1] if len(path.parts) > 1 else "", path.parts[2:]
    if kind in {"purelib", "platlib", "data"}:
        return str(PurePosixPath(*rest))
    return str(PurePosixPath("bin", *rest)) if kind == "scripts" else None


def sources(
    name: str, pieces: dict[str, Any], folders: list[Path]
) -> Iterator[tuple[Path, int, int]]:
    """Where a file's bytes lie: (file, offset, length), in order.

    Raises:
        UnpackError: They are not all there.
    """
    for folder in folders:
        for whole in (folder / "files" / name, folder / name):
            if whole.is_file():
                yield whole, 0, whole.stat().st_size
                return
    if name not in pieces:
        raise UnpackError(f"{name} is missing, whole and in pieces")
    for piece, offset, length in pieces[name]:
        found = [folder / piece for folder in folders if (folder / piece).is_file()]
        if not found:
            raise UnpackError(f"{piece} is missing, a piece of {name}")
        yield found[0], offset, length


def gather(spans: list[tuple[Path, int, int]], file: dict[str, Any], path: Path) -> None:
    """Writes a file together and verifies it.

    Raises:
        UnpackError: It has another sha256 than the manifest says.
    """
    digest = hashlib.sha256()
    with path.open("wb") as out:
        for source, offset, length in spans:
            with source.open("rb") as stream:
                stream.seek(offset)
                left = length
                while left and (chunk := stream.read(min(left, _CHUNK))):
                    digest.update(chunk)
                    out.write(chunk)
                    left -= len(chunk)
    if digest.hexdigest() != file["sha256"]:
        raise UnpackError(
            f"{file['name']} is damaged: it has another sha256 than the manifest says"
        )


def unpack_wheel(path: Path, folder: Path) -> Iterator[str]:
    """Unpacks a wheel below a site folder; yields what it writes there.

    Raises:
        UnpackError: A member's path leaves the folder.
    """
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            where = place(info.filename)
            if where is None or info.is_dir():
                continue
            with archive.open(info) as stream:
                _write(stream, folder / where, (info.external_attr >> 16) & _EXECUTABLE != 0)
            yield where


def unpack_tar(path: Path, folder: Path) -> Iterator[str]:
    """Unpacks a tar of regular files below a site folder; yields what it writes there.

    Raises:
        UnpackError: A member is something else, or its path leaves the folder.
    """
    with tarfile.open(path, "r:*") as archive:
        for info in archive:
            where = place(info.name)
            stream = archive.extractfile(info) if info.isfile() else None
            if where is None or stream is None:
                raise UnpackError(f"{path.name} holds {info.name!r}, which is no regular file")
            _write(stream, folder / where, info.mode & _EXECUTABLE != 0)
            yield where


def _write(stream: Any, path: Path, executable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # it may be linked to a file of another folder
    with path.open("wb") as out:
        shutil.copyfileobj(stream, out, _CHUNK)
    if executable:
        path.chmod(0o755)


def unpack_file(
    file: dict[str, Any], spans: list[tuple[Path, int, int]], folder: Path
) -> list[str]:
    """Gathers, verifies and unpacks one file of the bundle; returns what it became."""
    scratch = folder / f".{file['name']}"
    try:
        gather(spans, file, scratch)
        return list((unpack_wheel if file["kind"] == "wheel" else unpack_tar)(scratch, folder))
    finally:
        scratch.unlink(missing_ok=True)


def _plain(name: str) -> str:
    if not name or name != PurePosixPath(name).name or name.startswith("."):
        raise UnpackError(f"the manifest names a file by a path: {name!r}")
    return name


def unpack(
    manifest: dict[str, Any], pieces: dict[str, Any], dest: Path, folders: list[Path]
) -> None:
    """Unpacks what is not yet below DEST, in as many processes as there are processors."""
    fresh: dict[str, tuple[Path, Path]] = {}
    for name, directory in site_folders(manifest, dest).items():
        if not (directory / _DONE).is_file():
            fresh[name] = (dest / f".{directory.name}.{os.getpid()}", directory)
    twins = unpacked(dest)
    work = [
        (file, list(sources(_plain(file["name"]), pieces, folders)), fresh[file["folder"]][0])
        for file in sorted(manifest["files"], key=lambda file: -file["size"])
        if file["folder"] in fresh and file["sha256"] not in twins
    ]
    done: dict[Path, dict[str, list[str]]] = {scratch: {} for scratch, _ in fresh.values()}
    try:
        for scratch in done:
            scratch.mkdir()
        for file in manifest["files"]:
            if file["folder"] in fresh and file["sha256"] in twins:
                scratch = fresh[file["folder"]][0]
                done[scratch][file["sha256"]] = link(*twins[file["sha256"]], scratch)
        with ProcessPoolExecutor(max_workers=min(os.cpu_count() or 1, 16)) as pool:
            for job, result in [(job, pool.submit(unpack_file, *job)) for job in work]:
                done[job[2]][job[0]["sha256"]] = result.result()
        for scratch, directory in fresh.values():
            (scratch / _DONE).write_text(json.dumps(done[scratch]))
            if not (directory / _DONE).is_file():  # or somebody else was faster
                shutil.rmtree(directory, ignore_errors=True)
                scratch.rename(directory)
    finally:
        for scratch, _ in fresh.values():
            shutil.rmtree(scratch, ignore_errors=True)


def unpacked(dest: Path) -> dict[str, tuple[Path, list[str]]]:
    """What whole folders below DEST hold already: sha256 of a file -> (folder, what it became)."""
    found = {}
    for mark in sorted(dest.glob(f"[!.]*/{_DONE}")):
        table = json.loads(mark.read_bytes() or b"{}")
        for digest, members in table.items():
            if all((mark.parent / member).is_file() for member in members):
                found[digest] = (mark.parent, members)
    return found


def link(source: Path, members: list[str], folder: Path) -> list[str]:
    """Gives a folder the files of another: without their bytes again where the disk allows it."""
    for member in members:
        path = folder / member
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        try:
            os.link(source / member, path)
        except OSError:
            shutil.copy2(source / member, path)
    return members


def site_folders(manifest: dict[str, Any], dest: Path) -> dict[str, Path]:
    """The bundle's folders in the order of PYTHONPATH: name -> where it lies, named by content."""
    result = {}
    for name in manifest["pythonpath"]:
        lines = sorted(f["sha256"] for f in manifest["files"] if f["folder"] == name)
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        result[_plain(name)] = dest / f"{name}-{digest[:12]}"
    return result


def host_libraries() -> list[Path]:
    """The CUDA libraries that came with packages into this Python."""
    roots = {Path(sysconfig.get_path("platlib")), Path(sysconfig.get_path("purelib"))}
    roots.update(Path(folder) for folder in site.getsitepackages())
    return sorted(lib for root in roots for lib in root.glob("nvidia/*/lib") if lib.is_dir())


def exports(manifest: dict[str, Any], dest: Path) -> dict[str, str]:
    """The environment variables to set."""
    folders = site_folders(manifest, dest)
    libraries = []
    for entry in manifest["library_path"]:
        folder, _, rest = entry.partition("/")
        libraries.append(folders[folder] / rest)
    if manifest["torch"]["from"] == "bundle":
        # A torch that was carried does not find the host's libraries by itself.
        libraries += host_libraries()
    values = {
        **manifest["environment"],
        "PYTHONPATH": os.pathsep.join(map(str, folders.values())),
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
    }
    binaries = [str(folder / "bin") for folder in folders.values() if (folder / "bin").is_dir()]
    if binaries:
        values["PATH"] = os.pathsep.join([*binaries, os.environ.get("PATH", os.defpath)])
    return {name: value for name, value in values.items() if value}


def _read(path: Path, schema: str) -> dict[str, Any]:
    stream: BinaryIO
    try:
        with path.open("rb") as stream:
            data = json.load(stream)
    except (OSError, ValueError) as error:
        raise UnpackError(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict) or data.get("schema") != schema:
        raise UnpackError(f"{path} is not a {schema}")
    return data


def _main(path: Path, dest: Path, folders: list[Path]) -> dict[str, str]:
    manifest = _read(path, SCHEMA)
    here = ".".join(map(str, sys.version_info[:2]))
    if manifest["python"] != here:
        raise UnpackError(f"the bundle is for Python {manifest['python']}, this is {here}")
    beside = path.with_name("pieces.json")
    pieces = _read(beside, PIECES_SCHEMA)["files"] if beside.is_file() else {}
    dest.mkdir(parents=True, exist_ok=True)
    unpack(manifest, pieces, dest, [path.parent, *folders])
    return exports(manifest, dest)


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("manifest", type=Path)
    parser.add_argument("dest", type=Path)
    parser.add_argument("--from", dest="folders", type=Path, action="append", default=[])
    options = parser.parse_args(arguments)
    try:
        lines = _main(options.manifest, options.dest.absolute(), options.folders)
    except (UnpackError, OSError, zipfile.BadZipFile, tarfile.TarError) as error:
        print(f"unpack: {error}", file=sys.stderr)  # noqa: T201 - a script of its own
        return 4
    for name, value in lines.items():
        print(f"export {name}={shlex.quote(value)}")  # noqa: T201 - a script of its own
    return 0


if __name__ == "__main__":
    sys.exit(main())
