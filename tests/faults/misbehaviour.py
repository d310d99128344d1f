"""Makes real children misbehave, by a `sitecustomize` that runs a test's code in them.

The code is read when a child starts, so that one server of children serves many tests. It finds `on_cycle`,
which calls something when the child enters a stage of that cycle, `entry`, the child's own module, and the
common modules of the standard library.
"""

import os
from pathlib import Path

HOOK = """
import os, sys
def _misbehave():
    import ctypes, signal, subprocess, threading, time
    from pathlib import Path
    from dmad_sweep.child import entry
    from dmad_sweep.records import progress
    def on_cycle(cycle, act):
        report = progress.ProgressWriter.report
        def reporting(self, told):
            report(self, told)
            if told.cycle >= cycle:
                act()
        progress.ProgressWriter.report = reporting
    exec(Path(os.environ["MISBEHAVIOUR"]).read_text(), globals() | locals())
if "dmad_sweep.child.server" in sys.orig_argv and sys.orig_argv[-1] == "fork":
    os.register_at_fork(after_in_child=_misbehave)
elif "dmad_sweep.child" in sys.orig_argv:
    _misbehave()
"""


class Misbehaviour:
    """What children started in `environment` do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "hook"
        self._folder.mkdir()
        (self._folder / "sitecustomize.py").write_text(HOOK)
        self._code = folder / "misbehaviour.py"
        self.stop()

    @property
    def environment(self) -> dict[str, str]:
        path = os.environ.get("PYTHONPATH")
        return {
            "PYTHONPATH": str(self._folder) + (os.pathsep + path if path else ""),
            "MISBEHAVIOUR": str(self._code),
        }

    def start(self, code: str) -> None:
        """From the next child on. Written at once, for a child may be reading."""
        new = self._code.with_suffix(".new")
        new.write_text(code)
        new.replace(self._code)

    def stop(self) -> None:
        self.start("")

    @property
    def waits(self) -> bool:
        """Whether no child has emptied the code yet."""
        return bool(self._code.read_text())


ENDS = {
    "exit 0": "on_cycle(2, lambda: os._exit(0))",
    "exit 3": "on_cycle(2, lambda: os._exit(3))",
    "raise": "def act(): raise ValueError('a bug')\non_cycle(2, act)",
    "exit by exception": "on_cycle(2, lambda: sys.exit(4))",
    "segfault": "on_cycle(2, lambda: ctypes.string_at(0))",
    "abort": "on_cycle(2, os.abort)",
    "SIGKILL": "on_cycle(2, lambda: os.kill(os.getpid(), signal.SIGKILL))",
    "SIGTERM": "on_cycle(2, lambda: os.kill(os.getpid(), signal.SIGTERM))",
    "garbage": "entry.write_json = lambda path, value: path.write_bytes(bytes(range(256)) * 100)",
    "half a result": 'entry.write_json = lambda path, value: path.write_text(\'{"schema_version": 1, "st\')',
    "deep result": "entry.write_json = lambda path, value: path.write_text('[' * 100_000)",
    "no result": "entry.write_json = lambda path, value: None",
}
"""Ways to end without a result, or with a failure, by name."""

HANGS = {
    "sleep": "on_cycle(2, lambda: time.sleep(3600))",
    "native sleep": "on_cycle(2, lambda: ctypes.PyDLL(None).sleep(3600))",
    "stopped": "on_cycle(2, lambda: os.kill(os.getpid(), signal.SIGSTOP))",
    "deaf": "signal.signal(signal.SIGTERM, signal.SIG_IGN)\non_cycle(2, lambda: time.sleep(3600))",
    "deaf native sleep": "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "on_cycle(2, lambda: ctypes.PyDLL(None).sleep(3600))",
}
"""Ways to go on for ever; the native ones hold Python's lock."""

SLEEPER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"

DAEMON = f"""
def act():
    if not os.path.exists(marker):
        child = subprocess.Popen([sys.executable, "-c", {SLEEPER!r}], start_new_session=True, env={{}})
        Path(marker).write_text(str(child.pid))
marker = os.environ["MISBEHAVIOUR"] + ".pid"
"""
"""Defines `act`, which starts a deaf process in a session of its own and with an empty environment."""

LEAVES_A_DAEMON = f"{DAEMON}\non_cycle(2, act)"

FLOOD = """
def flood():
    if not flooded:
        flooded.append(True)
        for _ in range(1500): os.write(1, b"x" * 99_999 + b"\\n")
flooded = []
on_cycle(2, flood)
"""
"""150 MB of output, and the trial goes on."""

STATUS = (
    dict.fromkeys(ENDS, "failed")
    | {"SIGKILL": "killed", "SIGTERM": "killed"}
    | dict.fromkeys(HANGS, "timeout")
    | {"leaves a daemon": "ok", "flood": "ok"}
)
"""What a trial's row must say after each."""

ALL = ENDS | HANGS | {"leaves a daemon": LEAVES_A_DAEMON, "flood": FLOOD}
