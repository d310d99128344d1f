"""A preloaded server shared by the tests of a module: starting one takes seconds."""

from collections.abc import Callable, Iterator

import pytest

from dmad_sweep.records.files import TrialFolder
from dmad_sweep.records.plan import Plan
from dmad_sweep.records.record import Provenance, Record
from dmad_sweep.sweep.devices import Nvml
from dmad_sweep.sweep.isolation import ChildServer, Isolation
from dmad_sweep.sweep.trial import run_trial

PROVENANCE = Provenance(host="host", version="0", code_hash="0", commit=None, dirty=None, driver=None)

Run = Callable[[Plan], Record]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChildServer]:
    isolation = ChildServer("fork", tmp_path_factory.mktemp("server") / "server.log")
    yield isolation
    isolation.close()


def run_in(isolation: Isolation, plan: Plan, folder: TrialFolder) -> Record:
    return run_trial(plan, folder, isolation, Nvml(), PROVENANCE)
