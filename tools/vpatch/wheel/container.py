"""A Containerfile that lays a patched wheel over upstream's image of the same release."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.version import Version

from vpatch.errors import UsageError
from vpatch.files import write_atomically
from vpatch.wheel.build import BuiltWheel

UPSTREAM_IMAGE = "vllm/vllm-openai"
# A reference as registries take it; nothing in it can end a line or begin an option.
_IMAGE = re.compile(
    r"[a-z0-9][A-Za-z0-9._:/-]{0,250}(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}

_TEMPLATE = """\
# vLLM {version}: {file} over {image}.
#
# Build, in the folder that holds the wheel:
#   docker build{platform} -f {containerfile} -t {name} .
#   podman build{platform} -f {containerfile} -t {name} .
# Roll back: run {image} again; it is not changed.{rollback}
ARG BASE={image}
FROM ${{BASE}}

COPY ["{file}", "/tmp/vpatch/"]
# The image's Python is the system's: newer pips want to hear that this is meant.
RUN cd /tmp/vpatch \\
 && echo "{sha256}  {file}" | sha256sum -c - \\
 && PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-index --no-deps --force-reinstall \\
      --no-cache-dir "./{file}" \\
 && rm -r /tmp/vpatch
# The build fails here unless the image's Python imports the patched vLLM, and no other.
RUN cd / && python3 -c "import vllm; assert vllm.__version__ == '{version}', vllm.__version__"

LABEL org.opencontainers.image.version="{version}"
"""


def image_for(built: BuiltWheel) -> str:
    """Upstream's image of the wheel's release.

    Raises:
        UsageError: the wheel is a variant (another CUDA, a CPU build) that this image is not.
    """
    origin, base = built.provenance.origin, built.provenance.base
    if built.name != "vllm" or base.kind != "wheel" or Version(base.version).local:
        raise UsageError(
            f"{built.path.name} is not made from the wheel that {UPSTREAM_IMAGE}:{origin.tag} has",
            hint="Build it from upstream's wheel (without --base), or write the Containerfile for "
            "an image of that variant.",
            code="no-image",
        )
    return f"{UPSTREAM_IMAGE}:{origin.tag}"


def write_containerfile(built: BuiltWheel, *, image: str | None = None) -> Path:
    """Writes ``NAME.whl.Containerfile`` beside the wheel.

    Args:
        built: The wheel.
        image: The image to lay it over; upstream's for the release when None.

    Returns:
        The file. Its build context is the wheel's folder.

    Raises:
        UsageError: there is no upstream image for this wheel, or ``image`` is no image name.
        HostError: the disk refuses.
    """
    image = image or image_for(built)
    if not _IMAGE.fullmatch(image):
        raise UsageError(
            f"{image[:120]!r} is not the name of an image",
            hint=f"For example: {UPSTREAM_IMAGE}:{built.provenance.origin.tag}",
            code="bad-image",
        )
    path = built.path.with_name(f"{built.path.name}.Containerfile")
    write_atomically(path, _text(built, image, path.name).encode())
    return path


def _text(built: BuiltWheel, image: str, containerfile: str) -> str:
    arch = next((arch for arch in _PLATFORMS if built.path.stem.endswith(arch)), None)
    return _TEMPLATE.format(
        version=built.version,
        file=built.path.name,
        image=image,
        containerfile=containerfile,
        platform=f" --platform {_PLATFORMS[arch]}" if arch else "",
        # A tag of an image cannot hold a plus sign.
        name=f"{built.name}-openai:v{built.version.replace('+', '-')}",
        rollback=_rollback(built),
        sha256=built.sha256,
    )


def _rollback(built: BuiltWheel) -> str:
    base = Version(built.provenance.base.version)
    if base.local:
        return ""  # a variant: no package index has it
    return (
        " In a running container:\n#   PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install "
        f"--no-deps --force-reinstall {built.name}=={base}"
    )
