"""Injects faults into real sweeps at random instants, and checks that nothing is lost.

    python benchmarks/faults.py [FAULTS] [SEED]

Small sweeps run on the CPU while their children misbehave in every way that tests/faults knows, children,
their server and the sweep itself get signals, the store is locked and files are damaged. After every few
faults the same command runs undisturbed to its end; then records, store and table must agree, nothing may be
missing or counted twice, each row must tell what happened to its trial, and no process may be left. Ends with
exit code 1 at the first disagreement, and prints the seed that repeats it as far as times do.
"""

import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:1] = [
    str(ROOT),
    str(ROOT / "tests"),
]  # in place of this file's folder, whose name is faults as well

from faults.campaign import Campaign  # noqa: E402

FAULTS_PER_ROUND = 6


def main(faults: int, seed: int) -> int:
    print(f"seed {seed}")
    chance = random.Random(seed)
    total: Counter[str] = Counter()
    started, rounds = time.monotonic(), 0
    while total.total() < faults:
        with tempfile.TemporaryDirectory() as folder:
            campaign = Campaign(Path(folder), chance)
            try:
                campaign.disturb(FAULTS_PER_ROUND)
                campaign.settle()
                campaign.check()
            except AssertionError as error:
                print(f"after {dict(campaign.injected)} in round {rounds + 1}: {error}")
                return 1
            total += campaign.injected
            rounds += 1
            print(f"round {rounds}: {total.total()} faults, {time.monotonic() - started:.0f} s", flush=True)
    for name, count in sorted(total.items()):
        print(f"{count:5d}  {name}")
    print(f"{total.total()} faults in {rounds} rounds, nothing lost, {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:3]]
    sys.exit(main(*(arguments + [200, random.randrange(10**6)][len(arguments) :])))
