"""Variables of steps at the command line: code in the sandbox gets them, but none that a loader or an interpreter obeys."""

from __future__ import annotations

from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

OBEYED = (
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "GCONV_PATH", "LOCPATH"),
    *("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "OPENSSL_CONF", "SSL_CERT_FILE", "TZDIR"),
    *("BASH_ENV", "ENV", "IFS", "SHELLOPTS", "BASHOPTS", "PS4", "PERL5LIB", "PERL5OPT", "RUBYOPT", "NODE_OPTIONS"),
    *("JAVA_TOOL_OPTIONS", "BASH_FUNC_ls", "ld_preload", "Path", "HOME", "TMPDIR", "DETENT_OUT", "DETENT_INPUTS"),
)
CODE = """\
name: variables
steps:
  - id: first
    run: {code: "def main(): return 7"}
  - id: second
    run:
      code: |
        import os
        def main():
            return [os.environ["GREETING"], os.environ["COUNT"], os.environ["TZ"]]
    env: {GREETING: hello, COUNT: {$from: first}, TZ: Europe/Rome}
"""


def test_validate_refuses_variables_that_a_loader_obeys_on_a_code_step(project: Project) -> None:
    """JOB-073"""
    for name in OBEYED:
        project.write("flow.yaml", CODE.replace("GREETING: hello", f"GREETING: hello, {name}: x"))
        done = project("validate", "flow.yaml")
        assert done.code == 2, name
        assert f"flow.yaml:11:28: env {name!r} cannot be set on a code step" in done.out


def test_code_gets_the_variables_of_its_step(project: Project) -> None:
    project.write("flow.yaml", CODE)
    assert project("run", "flow.yaml").code == 0
    steps = project.json("show", "variables")["step_list"]
    assert steps[1]["result"] == ["hello", "7", "Europe/Rome"]


def test_a_variable_that_cannot_be_set_fails_its_step(project: Project) -> None:
    project.write("flow.yaml", CODE.replace("return 7", "return chr(0)"))
    done = project("run", "flow.yaml")
    assert done.code == 1
    assert "env 'COUNT' must not hold the character U+0000" in done.out + done.err


def test_trusted_steps_may_set_what_they_like(project: Project) -> None:
    text = (
        "name: trusted\nsteps:\n  - id: one\n    run: {shell: 'test $MALLOC_ARENA_MAX = 2 && test $PYTHONPATH = lib'}\n"
    )
    project.write("flow.yaml", text + "    env: {MALLOC_ARENA_MAX: 2, PYTHONPATH: lib}\n")
    assert project("run", "flow.yaml").code == 0
