"""A jail for untrusted code, made of what the kernel offers and nothing else.

Start reading at `supervisor`, then `spawner`, `jail`, `init` and `guest`, which is the order in which a job meets them.
`filter_rules` and `classify` hold the two tables that decide what is forbidden and what a failure is called.
"""

from __future__ import annotations

from detent.executor.sandbox.capabilities import Capabilities, probe, profile_of
from detent.executor.sandbox.interpreter import interpreter as bare_interpreter
from detent.executor.sandbox.model import (
    DEFAULT_REQUIRED,
    Evidence,
    Execution,
    Input,
    Job,
    Limits,
    OutputFile,
    Profile,
    Raised,
    Stream,
    limits_of,
)
from detent.executor.sandbox.running import OnOutput, Running
from detent.executor.sandbox.supervisor import Sandbox, SandboxFailed

__all__ = [
    "DEFAULT_REQUIRED",
    "Capabilities",
    "Evidence",
    "Execution",
    "Input",
    "Job",
    "Limits",
    "OnOutput",
    "OutputFile",
    "Profile",
    "Raised",
    "Running",
    "Sandbox",
    "SandboxFailed",
    "Stream",
    "bare_interpreter",
    "limits_of",
    "probe",
    "profile_of",
]
