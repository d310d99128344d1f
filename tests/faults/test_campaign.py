"""A short campaign; benchmarks/faults.py runs long ones."""

import random
from pathlib import Path

from faults.campaign import Campaign


def test_faults_at_random_instants_lose_nothing(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # shown on failure
    campaign = Campaign(tmp_path, random.Random(seed))
    campaign.disturb(8)
    campaign.settle()
    campaign.check()
