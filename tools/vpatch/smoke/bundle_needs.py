"""Which wheels a GPU host lacks to run a vLLM wheel: pip's choice, less what the host has.

pip chooses a whole consistent set. A package that the host has takes the place of the chosen one
where everything that asks for it accepts the host's version, and where the host's version accepts
everything that is carried. The rest is carried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from vpatch.errors import HostError
from vpatch.smoke.bundle_pip import Wheel, needed, resolve
from vpatch.smoke.bundle_rules import HOST_FIRST, LEFT_OUT, META_PACKAGES, library
from vpatch.smoke.bundle_target import Target

_ROUNDS = 5


@dataclass(frozen=True)
class Needs:
    """What a vLLM wheel needs on a host.

    Attributes:
        carried: The wheels that the host lacks for the vLLM wheel, by name.
        from_host: The packages of the host that are used: name -> what it has.
        left_out: Packages that the wheel requires and the smoke does not: name -> reason.
        tool: The wheels that it lacks beyond those for the tool that runs the smoke.
    """

    carried: tuple[Wheel, ...]
    from_host: Mapping[str, str]
    left_out: Mapping[str, str]
    tool: tuple[Wheel, ...] = ()


def find_needs(
    requires: Iterable[Requirement],
    have: Mapping[str, Version],
    target: Target,
    tool: Iterable[Requirement] = (),
) -> Needs:
    """Works out what has to be carried.

    Args:
        requires: What the vLLM wheel's METADATA says, for every environment.
        have: What the host has.
        target: The host.
        tool: What the tool requires that runs in the same interpreter.

    Raises:
        HostError: pip finds no set of wheels that fits, or none that fits both.
    """
    everything, own = list(needed(requires, target)), list(needed(tool, target))
    chosen = _chosen_together(_open(everything, have), _open(own, have), have, target)
    walk = _Walk(everything + own, chosen, have, target)
    _settle(walk)
    from_host, left_out, carried = walk.from_host, walk.left_out, walk.carried
    walk.roots = everything
    walk.run()
    return Needs(
        tuple(chosen[name] for name in sorted(walk.carried)),
        dict(sorted(from_host.items())),
        dict(sorted(left_out.items())),
        tuple(chosen[name] for name in sorted(carried - walk.carried)),
    )


def _open(requires: list[Requirement], have: Mapping[str, Version]) -> list[Requirement]:
    """Without what the host serves in any case: that shall not bind pip's choice of the others."""
    return [one for one in requires if not _settled(_name(one), have)]


def _name(requirement: Requirement) -> NormalizedName:
    return canonicalize_name(requirement.name)


def _settled(name: NormalizedName, have: Mapping[str, Version]) -> bool:
    return name in LEFT_OUT or _host_first(name, have)


def _host_first(name: NormalizedName, have: Mapping[str, Version]) -> bool:
    return name in HOST_FIRST and name in have and have[name] >= Version(HOST_FIRST[name][0])


def _chosen_together(
    roots: list[Requirement],
    own: list[Requirement],
    have: Mapping[str, Version],
    target: Target,
) -> Mapping[NormalizedName, Wheel]:
    """pip's set for the wheel and the tool; where there is none, whose fault that is."""
    try:
        return _chosen(roots + own, have, target)
    except HostError as error:
        if not own or error.code != "resolve":
            raise
        alone = _chosen(roots, have, target)
        clashes = [
            f"vpatch requires {one}, the vLLM wheel comes with {_name(one)} {found.version}"
            for one in own
            for found in [alone.get(_name(one))]
            if found is not None and not _accepts(one.specifier, found.version)
        ]
        raise HostError(
            "vpatch and the vLLM wheel do not fit into one environment: "
            + ("; ".join(clashes) or error.message),
            hint="Use a vpatch, or a vLLM, whose requirements leave room for the other's.",
            code="resolve",
        ) from error


def _chosen(
    roots: list[Requirement], have: Mapping[str, Version], target: Target
) -> Mapping[NormalizedName, Wheel]:
    """pip's set, completed by what markers ask for on the target but not here."""
    asked = list(roots)
    first = {name: have[name] for name in HOST_FIRST if name in have}
    for _ in range(_ROUNDS):
        chosen = resolve(asked, target)
        walk = _Walk(roots, chosen, first, target)
        walk.run()
        wrong = [
            Requirement(f"{name}{specifier}")
            for name, specifiers in walk.asked.items()
            for specifier in specifiers
            if name not in chosen or not _accepts(specifier, chosen[name].version)
        ]
        if not wrong:
            return chosen
        asked += wrong
    names = ", ".join(sorted({one.name for one in wrong}))
    raise HostError(
        f"pip's choice for Python {target.python} does not settle: {names}",
        hint=f"Run vpatch with Python {target.short_python} itself.",
        code="resolve",
    )


def _settle(walk: _Walk) -> None:
    """Replaces host packages that do not fit by carried ones, until all fits. It ends: nothing
    goes back to the host, and the set that is carried whole is consistent."""
    known: dict[str, Wheel | None] = {}
    while True:
        walk.run()
        unfit = {name for name in walk.replaceable() if not walk.fits(name)}
        for name in walk.replaceable() - unfit:
            if name not in known:
                known[name] = _as_on_host(walk, name)
            if not walk.agrees(known[name]):
                unfit.add(name)
        if not unfit:
            return
        walk.replaced |= unfit


def _as_on_host(walk: _Walk, name: NormalizedName) -> Wheel | None:
    """What the host's version of a package requires; None where that cannot be found out (a build
    of the host's own, say): then the chosen one is carried, which fits in any case."""
    version = Version(walk.have[name].public)
    if walk.chosen[name].version == version:
        return walk.chosen[name]
    try:
        found = resolve([Requirement(f"{name}=={version}")], walk.target, with_needs=False)
    except HostError:
        return None
    return found[name]


def _accepts(specifier: SpecifierSet, version: Version) -> bool:
    return specifier.contains(version, prereleases=True)


@dataclass
class _Walk:
    """From the roots along what is required, with what the host has standing in."""

    roots: list[Requirement]
    chosen: Mapping[NormalizedName, Wheel]
    have: Mapping[str, Version]
    target: Target
    replaced: set[str] = field(default_factory=set)
    carried: set[NormalizedName] = field(default_factory=set)
    from_host: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    asked: dict[NormalizedName, list[SpecifierSet]] = field(default_factory=dict)

    def run(self) -> None:
        """Fills carried, from_host, left_out and asked."""
        self.carried, self.from_host, self.left_out, self.asked = set(), {}, {}, {}
        done: set[tuple[str, frozenset[str]]] = set()
        open_ends = list(self.roots)
        while open_ends:
            one = open_ends.pop()
            name = _name(one)
            if name in LEFT_OUT:
                self.left_out[name] = LEFT_OUT[name]
                continue
            if _host_first(name, self.have):
                self.from_host[name] = str(self.have[name])
                continue
            self.asked.setdefault(name, []).append(one.specifier)
            key = (name, frozenset(one.extras))
            if name not in self.chosen or key in done:
                continue
            done.add(key)
            wheel = self.chosen[name]
            if name in META_PACKAGES or not self._from_host(wheel):
                open_ends += wheel.needs(self.target, one.extras)

    def _from_host(self, wheel: Wheel) -> bool:
        """Whether the host has it; else it is carried."""
        serving = None if wheel.name in self.replaced else self._serving(wheel)
        if serving is None:
            self.carried.add(wheel.name)
        else:
            self.from_host[wheel.name] = serving
        return serving is not None

    def _serving(self, wheel: Wheel) -> str | None:
        wanted = library(wheel.name, wheel.version)
        if wanted is None:
            version = self.have.get(wheel.name)
            return None if version is None else str(version)
        for name, version in sorted(self.have.items()):
            found = library(name, version)
            if found is not None and found.serves(wanted):
                return f"{name} {version}"
        return None

    def replaceable(self) -> set[NormalizedName]:
        """The host's packages whose versions matter; of a CUDA library only the soname does."""
        return {
            name
            for name in map(canonicalize_name, self.from_host)
            if not _host_first(name, self.have) and library(name, self.chosen[name].version) is None
        }

    def fits(self, name: NormalizedName) -> bool:
        """Whether everything that asks for a package accepts the host's version."""
        return all(_accepts(one, self.have[name]) for one in self.asked[name])

    def agrees(self, wheel: Wheel | None) -> bool:
        """Whether a package as it is on the host accepts everything that is carried."""
        if wheel is None:
            return False
        for one in wheel.needs(self.target):
            name = _name(one)
            if name in self.carried and not _accepts(one.specifier, self.chosen[name].version):
                return False
        return True
