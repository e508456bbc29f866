"""What this machine's sandbox is, and what untrusted code gets by it: the answer of `detent doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from detent.canon.late import dataclass
from detent.executor.sandbox.capabilities import Capabilities, probe, profile_of
from detent.executor.sandbox.model import DEFAULT_REQUIRED, Profile

MEANING: Final[Mapping[Profile, str]] = {
    Profile.FULL: "contained, and the kernel counts the memory and the processes of the whole tree",
    Profile.FULL_ROOTLESS: "contained; memory and processes of the whole tree are looked at, not counted by the kernel",
    Profile.KERNEL_FILTER: "kept from files and the network, but in this machine's own processes, users and host name",
    Profile.NONE: "not contained: a plain child process with limits",
}


@dataclass(frozen=True, slots=True)
class Primitive:
    """One thing that the kernel offers a sandbox, or does not."""

    name: str
    works: bool
    text: str

    def to_map(self) -> dict[str, object]:
        """As data."""
        return {"name": self.name, "works": self.works, "text": self.text}


@dataclass(frozen=True, slots=True)
class SandboxView:
    """The strongest profile here, the one that is required, and what they are made of."""

    profile: Profile
    required: Profile
    primitives: tuple[Primitive, ...]
    is_root: bool

    @property
    def contained(self) -> bool:
        """Whether untrusted code is run here; otherwise it is refused."""
        return self.profile.strength >= self.required.strength

    @property
    def lowered(self) -> bool:
        """Whether an operator allows less than such code should have."""
        return self.required.strength < DEFAULT_REQUIRED.strength

    def verdict(self) -> str:
        """What untrusted code gets here, in a sentence."""
        here = f"profile {self.profile.value}, required is {self.required.value}: untrusted code "
        if not self.contained:
            return f"{here}is refused (SANDBOX_UNAVAILABLE); trusted functions and shell steps run as everywhere"
        told = " and every result says that less was required" if self.lowered else ""
        return f"{here}is {MEANING[self.profile]}{told}"

    def hint(self) -> str | None:
        """What to do where it is refused; nothing where it is not."""
        if self.contained:
            return None
        lacking = ", ".join(primitive.name for primitive in self.primitives if not primitive.works)
        return (
            f"it lacks {lacking}; docs/sandbox.md says who has it, and sandbox.required in config.toml what is needed"
        )

    def to_map(self) -> dict[str, object]:
        """One object of `detent doctor -o json`."""
        return {
            "profile": self.profile.value,
            "required": self.required.value,
            "contained": self.contained,
            "lowered": self.lowered,
            "root": self.is_root,
            "primitives": [primitive.to_map() for primitive in self.primitives],
        }


def sandbox_view(required: str, capabilities: Capabilities | None = None) -> SandboxView:
    """Try what this machine offers, once per process; takes a fraction of a second."""
    found = probe() if capabilities is None else capabilities
    primitives = tuple(Primitive(*line) for line in found.lines())
    return SandboxView(profile_of(found), Profile(required), primitives, found.is_root)
